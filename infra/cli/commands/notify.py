"""``deltarelay notify test``: sends a message to each address of the block `notify`."""

from __future__ import annotations

import typer

from cdf.errors import ConfigError
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.output import DONE, FAILED, Output

__all__ = ["app"]

app = typer.Typer(help="Messages about incidents.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command("test")
def send_test(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Send a test message to each address of `notify`. Exit code 1: an address did not take it."""
    from infra.monitoring.addresses import build_addresses

    output = Output("notify test", as_json, debug)
    settings = load_project(config).notify
    if settings is None:
        raise ConfigError("the configuration has no block `notify`", hint="add `notify: {urls: [ADDRESS]}`")
    text = "This is a test. Incidents of pipelines are sent to this address."
    sent = [address.send("deltarelay: test", text, "info") for address in build_addresses(settings)]
    for one in sent:
        output.line(f"address {one.address}: " + ("sent" if one.error is None else f"not sent: {one.error}"))
    failed = any(one.error is not None for one in sent)
    output.finish({"addresses": [one.to_dict() for one in sent]}, FAILED if failed else DONE)
