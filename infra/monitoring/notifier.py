"""Sends messages about incidents of the pipelines of a command, once for each incident, without slowing replication."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from infra.diagnostics.delta_table import explain_spark_only
from infra.diagnostics.status import read_pipeline_status
from infra.monitoring.addresses import build_addresses
from infra.monitoring.background import Background
from infra.monitoring.health import Incident, find_incidents
from infra.monitoring.incidents import Message, Origin, apply_messages, find_messages, judge_error, says_nothing
from infra.monitoring.memory import Memory
from infra.monitoring.observers import Observer, ReadStatus

if TYPE_CHECKING:
    from cdf import Verification
    from cdf.errors import CdfError
    from cdf.results import Followed, Step
    from infra.config.models import Project
    from infra.config.monitoring_models import Notify

__all__ = ["Notifier"]

CHECK_SECONDS = 30.0
"""Interval between two looks at the pipelines of a follower."""
CLOSE_SECONDS = 10.0

log = logging.getLogger("deltarelay.monitoring")


class Notifier(Observer):
    def __init__(self, project: Project, settings: Notify) -> None:
        self._project, self._settings = project, settings
        self._addresses = build_addresses(settings)
        self._background = Background("notify")
        self._memories: dict[str, Memory] = {}
        self._following: set[str] = set()
        self._moved: set[str] = set()
        """Pipelines that have applied a step in this process."""
        self._closing = threading.Event()
        self._checker: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self, pipeline: str, read_status: ReadStatus | None) -> None:
        if read_status is None:
            return
        self._following.add(pipeline)
        with self._lock:
            if self._checker is None:
                self._checker = threading.Thread(target=self._check_regularly, name="notify-check", daemon=True)
                self._checker.start()

    def record_step(self, pipeline: str, step: Step | Followed) -> None:  # noqa: ARG002
        if pipeline in self._following and pipeline not in self._moved:
            self._moved.add(pipeline)  # a former runner has failed, and this one works
            self._background.submit(lambda: self._report(pipeline, (), "run"))

    def end(self, pipeline: str, error: CdfError | None) -> None:
        was_following = pipeline in self._following
        self._following.discard(pipeline)
        if says_nothing(error) or (was_following and error is None):  # a follower that was stopped
            return
        self._background.submit(lambda: self._report(pipeline, judge_error(error), "run"))
        self._background.submit_latest(pipeline, lambda: self._check(pipeline))

    def record_verification(self, pipeline: str, found: Verification) -> None:
        counts = f"{found.missing} missing, {found.extra} extra, {found.different} different"
        least = "" if found.complete else "at least "
        text = f"at version {found.version} the target differs from its source: {least}{counts}"
        incidents = [] if found.equal else [Incident("verify_difference", text)]
        self._background.submit(lambda: self._report(pipeline, incidents, "verify"))

    def close(self) -> None:
        self._closing.set()
        self._background.close(CLOSE_SECONDS)

    def _check_regularly(self) -> None:
        while not self._closing.wait(CHECK_SECONDS):
            for pipeline in list(self._following):
                self._background.submit_latest(pipeline, functools.partial(self._check_follower, pipeline))

    def _check_follower(self, pipeline: str) -> None:
        if pipeline in self._following and not self._closing.is_set():  # else the last messages wait for it
            self._check(pipeline)

    def _check(self, pipeline: str) -> None:
        """Judge the pipeline as ``status`` does."""
        if explain_spark_only(self._project.pipeline(pipeline).source.table) is not None:
            return
        now = dt.datetime.now(dt.UTC)
        status = read_pipeline_status(self._project, pipeline, now=now, stuck_after=self._settings.stuck_after)
        # While source or target cannot be read, the rest is unknown
        found = find_incidents(status, self._settings, now)
        self._report(pipeline, found, "status", is_partial=status.code is not None)

    def _report(self, pipeline: str, found: Sequence[Incident], origin: Origin, *, is_partial: bool = False) -> None:
        memory = self._memories.setdefault(pipeline, Memory(self._project, pipeline, "incidents"))
        known = memory.change(lambda content: content)
        now, kinds = dt.datetime.now(dt.UTC), self._settings.kinds
        messages = find_messages(pipeline, known, found, origin, kinds, now, is_partial=is_partial)
        sent = [one for one in messages if self._send(one)]
        if sent:
            memory.change(lambda content: apply_messages(content, sent))

    def _send(self, message: Message) -> bool:
        """Whether one address at least has taken the message: otherwise it is sent at the next look."""
        kind: Literal["failure", "success"] = "success" if message.entry is None else "failure"
        results = [address.send(message.title, message.text, kind) for address in self._addresses]
        for one in results:
            if one.error is not None:
                log.warning("a notification was not sent", extra={"address": one.address, "error": one.error})
        return any(one.error is None for one in results)
