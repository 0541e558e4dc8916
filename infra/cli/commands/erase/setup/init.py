"""``deltarelay erase init``: creates the erasure register."""

from __future__ import annotations

from dataclasses import dataclass

from cdf.result import Result
from infra.cli.commands.erase.context import ErasureContext
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["ErasureRegisterMade", "init"]


@dataclass(frozen=True, slots=True)
class ErasureRegisterMade(Result):
    schema_name: str
    identity: str


def init(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Create the erasure register and show its identity; does not change an existing register. Starts no JVM.

    Pipelines with a table of `erasure.tables` do not run without a register: only the register records who was erased.
    """
    output = Output("erase init", as_json, debug)
    context = ErasureContext(config)
    result = ErasureRegisterMade(context.erasure.state.schema_name, context.create_register())
    output.line(f"erasure register {result.schema_name}: ready")
    if context.erasure.state.identity is None:
        output.line(f"add to `erasure.state` in the configuration: identity: {result.identity}")
    output.result(result)
