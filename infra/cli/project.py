"""The configuration that a command works with, and the pipelines that ``--pipeline`` selects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from infra.cli.options import DEFAULT_CONFIG

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["load_optional_project", "load_project", "select_pipelines"]


def load_project(config: Path) -> Project:
    from infra.config.load import load  # pydantic is slow to import, and `--help` does not need it

    return load(config, list_schema=_list_schema)


def _list_schema(project: Project, pattern: str) -> list[str]:
    """Start Spark for the list: a catalog may be a metastore that only the session's settings describe."""
    from infra.catalog_tables import list_catalog_tables
    from infra.output import Output
    from infra.runtime import spark_session

    with spark_session(Output("list"), project, may_be_remote=True) as spark:
        return list_catalog_tables(spark, pattern)


def load_optional_project(config: Path) -> Project | None:
    """For commands that work without a configuration: None if the default file does not exist."""
    if config == DEFAULT_CONFIG and not config.exists():
        return None
    from infra.config.load import load

    return load(config, look_for_tables=False)


def select_pipelines(project: Project, names: Sequence[str] | None) -> list[str]:
    """Return the names of the selected pipelines in the order of the file; all without ``names``."""
    if not names:
        return list(project.pipelines)
    wanted: set[str] = set()
    for name in names:
        wanted.update(project.names_of(name))
    return [name for name in project.pipelines if name in wanted]
