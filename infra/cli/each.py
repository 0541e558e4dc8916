"""The loop that ``plan``, ``run`` and ``verify`` share: one session, every pipeline by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from infra.cli.context import build_pipeline, chosen, spark_session
from infra.cli.output import DONE, Output, in_our_words
from infra.interrupt import ctrl_c_counts

if TYPE_CHECKING:
    from cdf import Pipeline
    from cdf.result import Result
    from infra.config.model import Project

__all__ = ["each_pipeline"]


def each_pipeline(
    output: Output, project: Project, wanted: Sequence[str] | None, work: Callable[[Pipeline], tuple[Result, int]]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Do ``work`` for each pipeline; one that fails does not stop the others. → entries for --json, exit codes"""
    names = chosen(project, wanted)
    results: list[dict[str, Any]] = []
    codes: list[int] = []
    with spark_session(output, project) as spark:
        for name in names:
            try:
                with ctrl_c_counts():
                    result, code = work(build_pipeline(project, name, spark))
            except BrokenPipeError:
                raise  # whoever read our output has left: nobody to work for
            except Exception as error:
                failure = in_our_words(error)
                codes.append(output.failure(name, failure))
                results.append({"pipeline": name, "ok": False, "error": failure.to_dict()})
                continue
            results.append({"ok": code == DONE, **result.to_dict()})
            codes.append(code)
    return results, codes
