"""``deltarelay storage template``: a CloudFormation template."""

from __future__ import annotations

from importlib.resources import files

from infra.cli.options import Debug, Json
from infra.output import Output

__all__ = ["template"]


def template(as_json: Json = False, debug: Debug = False) -> None:
    """Print a CloudFormation template of the lock table, with policies to manage it, and to read, write and audit tables."""
    output = Output("storage template", as_json, debug)
    text = (files("infra.s3") / "template.yaml").read_text()
    if not as_json:
        print(text, end="")  # not with `output.line`: rich could wrap lines
    output.result({"template": text})
