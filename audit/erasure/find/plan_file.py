"""The file of a plan: written, read, and compared with the register."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.erasure.find.plan import Plan, digest_of
from audit.files import describe_failure, write_new
from cdf.errors import ConfigError
from cdf.listing import list_some

if TYPE_CHECKING:
    from audit.erasure.register.records import Run

__all__ = ["check_plan", "check_tables", "read_plan", "write_plan"]


def write_plan(plan: Plan, path: Path) -> None:
    """Write a new file. An existing file is never overwritten: it may be a plan that was approved."""
    try:
        write_new(path, json.dumps({**plan.to_dict(), "digest": plan.digest}, indent=2) + "\n", mode=0o600)
    except FileExistsError as error:
        raise ConfigError(f"the file {path} already exists", hint="name another file with --out") from error
    except OSError as error:
        raise ConfigError(f"the plan cannot be written to {path}: {describe_failure(error)}") from error


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan as it was written. Raises ConfigError where the file is no plan, or was changed since."""
    try:
        if not path.is_file():  # opening a pipe would block
            raise FileNotFoundError
        read = json.loads(path.read_text())
        document: dict[str, Any] = read if isinstance(read, dict) else {}
        digest = document.pop("digest", None)
        found = None if digest is None else digest_of(document)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the plan {path} cannot be read", hint="`deltarelay erase plan` writes one") from error
    except (ValueError, TypeError, RecursionError):  # no JSON, or with values that a plan cannot have
        found = None
    if found is None:
        raise ConfigError(f"{path} is not a plan", hint="`deltarelay erase plan` writes one")
    if found != digest:
        raise ConfigError(f"the plan {path} was changed after it was made", hint="run `deltarelay erase plan` again")
    return document


def check_plan(run: Run, plan: Mapping[str, Any], given: Mapping[str, Any] | None) -> None:
    """The plan in the register is executed; ``given``, the plan of a file, must be the same.

    Anyone can compute the digest of an edited file, so the file only names its run. Raises ConfigError where they differ, or
    where requests of the plan are no longer in the run.
    """
    if digest_of(plan) != run.plan_digest:
        raise ConfigError(
            f"the plan of run {run.id} in the register was altered", hint="run `deltarelay erase plan` again"
        )
    if given is not None and digest_of(given) != run.plan_digest:
        raise ConfigError(
            f"the file is not the plan of run {run.id}: it differs from the one in the register",
            hint=f"`deltarelay erase run {run.id}` executes the plan in the register; or run `deltarelay erase plan` again",
        )
    if moved := sorted(set(plan["requests"]) ^ set(run.requests)):
        raise ConfigError(
            f"run {run.id} no longer has the requests of its plan: {list_some(moved)}",
            hint="run `deltarelay erase plan` again: another run has these requests now",
            requests=moved,
        )


def check_tables(plan: Mapping[str, Any], tables: Collection[str]) -> None:
    """``tables``: the tables of the subjects in the present configuration. A planned table that is no longer configured
    would not be erased, and the certificate would not name it."""
    if other := sorted({one["table"] for one in plan["tables"]} ^ set(tables)):
        raise ConfigError(
            f"`erasure.tables` has changed since the plan was made: {list_some(other)}",
            hint="restore it until the run is finished, or run `deltarelay erase plan` again",
        )
