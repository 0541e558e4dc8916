"""The page of error codes: the classes give code, exit status and place in the hierarchy, ``errors.toml`` gives the text."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from pathlib import Path

import audit
import cdf
import connectors
import deltarelay
import infra
from cdf.errors import CdfError

__all__ = ["errors_page", "error_classes", "TEXTS"]

TEXTS = Path(__file__).with_name("errors.toml")

_HEAD = """# Error codes

<!-- generated: make references -->

Every error has a **code**, which never changes, a message, and mostly a hint: the command or setting that helps. With
`--json` they are the fields `code`, `message` and `hint` of `error`, beside `transient` and `condition` (the error condition
of Delta or Spark, or the SQLSTATE of PostgreSQL, where one caused the error). Row values and keys are in none of them.

The exit status of a command is 75 for a *temporary* error, which a later retry can overcome without any change by a
person, 2 for `config`, and 1 for every other error. In Python every error is a `deltarelay.CdfError`.
"""


def error_classes() -> dict[str, type[CdfError]]:
    """Every concrete error class of the product by its code. Imports all modules, so that none is missed."""
    for package in (cdf, connectors, audit, infra):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    classes: dict[str, type[CdfError]] = {}
    waiting: list[type[CdfError]] = [CdfError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        # A subclass without a code of its own is the same error for a user.
        if "code" in vars(kind) and kind.__module__.split(".")[0] in ("cdf", "connectors", "audit", "infra"):
            classes[kind.code] = kind
    return classes


def errors_page() -> str:
    texts = tomllib.loads(TEXTS.read_text())
    classes = error_classes()
    if missing := classes.keys() ^ texts.keys():
        raise SystemExit(f"errors.toml and the error classes differ: {', '.join(sorted(missing))}")
    lines = [_HEAD, "| code | meaning | temporary |", "|---|---|---|"]
    for code, text in texts.items():
        summary = text["meaning"].strip().split(". ")[0].rstrip(".")
        lines.append(f"| [`{code}`](#{code}) | {summary} | {'yes' if classes[code].transient else ''} |")
    for code, text in texts.items():
        kind = classes[code]
        lines += ["", f"## {code}", "", text["meaning"].strip(), ""]
        home = "deltarelay" if kind.__name__ in deltarelay.__all__ else kind.__module__
        lines += [f"- **Class:** `{home}.{kind.__name__}`"]
        lines += [f"- **Message, for example:** {text['message'].strip()}"]
        lines += [f"- **Fix:** {text['fix'].strip()}"]
        lines += [f"- **Prevention:** {text['prevention'].strip()}"]
    return "\n".join(lines) + "\n"
