"""The options of every ``deltarelay storage lock`` command, and the ``storage`` settings that result from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import ConfigError
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_optional_project

if TYPE_CHECKING:
    from infra.s3.model import Storage

__all__ = ["LockOptions", "load_storage"]


@dataclass(frozen=True, slots=True)
class LockOptions:
    table: Annotated[str | None, typer.Option("--table", help="The lock table; default: storage.commits.table.")] = None
    region: Annotated[str | None, typer.Option("--region", help="Its region; default: storage.commits.region.")] = None
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="A server to use instead of AWS; also for S3, unless the configuration file names one.",
        ),
    ] = None
    config: Config = DEFAULT_CONFIG
    as_json: Json = False
    debug: Debug = False


_EXPECTED = {
    "table": "must be 3 to 255 letters, digits, dots, dashes or underscores",
    "region": "must be a region such as eu-west-1",
    "endpoint": "must be a URL such as https://dynamodb.example.com:8000, without user, path or query",
}


def load_storage(options: LockOptions) -> Storage:
    """Return the file's ``storage`` block with the options applied; only the options if there is no file."""
    from pydantic import ValidationError

    from infra.s3.model import Storage

    project = load_optional_project(options.config)
    storage = Storage() if project is None else project.storage
    values = (("table", options.table), ("region", options.region), ("endpoint", options.endpoint))
    given = {name: value for name, value in values if value}
    if not given:
        return storage
    settings: dict[str, Any] = storage.model_dump(exclude_none=True)
    commits = settings.get("commits", {})
    if commits.get("kind") != "dynamodb" and options.table is None:
        return storage  # no lock table is configured, which the command will report
    settings["commits"] = {**(commits if commits.get("kind") == "dynamodb" else {"kind": "dynamodb"}), **given}
    if options.endpoint and not settings.get("s3", {}).get("endpoint"):
        settings["s3"] = {**settings.get("s3", {}), "endpoint": options.endpoint, "path_style": True}
    try:
        return Storage.model_validate(settings)
    except ValidationError as error:
        wrong = sorted({str(part) for problem in error.errors() for part in problem["loc"]} & given.keys())
        raise ConfigError(
            "; ".join(f"--{name} {_EXPECTED[name]}" for name in wrong) or "the options contradict the file",
            hint="correct the option, or leave it out to use the value in the file",
        ) from error
