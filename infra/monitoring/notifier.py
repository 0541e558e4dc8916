"""Sends messages about incidents of the pipelines of a command, once for each incident, without slowing replication."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal

from cdf.errors import CdfError, Paused
from infra.diagnostics.delta_table import explain_spark_only
from infra.diagnostics.evidence import count_overdue, has_anchors, read_anchoring
from infra.diagnostics.status import read_pipeline_status
from infra.monitoring.addresses import build_addresses
from infra.monitoring.background import Background
from infra.monitoring.health import KINDS, Incident, find_incidents, judge_anchoring, judge_erasures, list_unjudged
from infra.monitoring.incidents import Message, Origin, apply_messages, find_messages, judge_error, says_nothing
from infra.monitoring.memory import Memory
from infra.monitoring.observers import Observer, ReadStatus

if TYPE_CHECKING:
    from audit.erasure.run.runner import ErasureReport
    from cdf import Verification
    from cdf.results import Followed, Step
    from infra.config.models import Project
    from infra.config.monitoring_models import Notify

__all__ = ["Notifier"]

CHECK_SECONDS = 30.0
"""Interval between two looks at the pipelines of a follower."""
EVIDENCE_EVERY = 2
"""At every second look, trails and the register of erasures are read as well."""
CLOSE_SECONDS = 10.0

log = logging.getLogger("deltarelay.monitoring")


class Notifier(Observer):
    def __init__(self, project: Project, settings: Notify) -> None:
        self._project, self._settings = project, settings
        self._addresses = build_addresses(settings)
        self._background = Background("notify")
        self._evidence = Background("notify-evidence")
        """Reads trails, anchors and the register of erasures, which may take long: other messages do not wait for it."""
        self._began_at = dt.datetime.now(dt.UTC)
        self._memories: dict[tuple[str, str], Memory] = {}
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
        if was_following and error is None:  # it was stopped
            return
        if not says_nothing(error):
            # Only a success ends the incidents of former runs, whatever this one ended with
            found, unjudged = judge_error(error), () if error is None else KINDS
            self._background.submit(lambda: self._report(pipeline, found, "run", unjudged=unjudged))
        elif not isinstance(error, Paused):
            return  # where it is paused, the feed files that it needs still expire
        self._background.submit_latest(pipeline, lambda: self._check(pipeline))
        self._submit_evidence(pipeline)

    def record_verification(self, pipeline: str, found: Verification) -> None:
        counts = f"{found.missing} missing, {found.extra} extra, {found.different} different"
        least = "" if found.complete else "at least "
        text = f"at version {found.version} the target differs from its source: {least}{counts}"
        incidents = [] if found.equal else [Incident("verify_difference", text)]
        self._background.submit(lambda: self._report(pipeline, incidents, "verify"))

    def record_erasure(self, report: ErasureReport) -> None:  # noqa: ARG002
        self._submit_register()

    def close(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        self._closing.set()
        self._evidence.close(CLOSE_SECONDS / 2)
        self._background.close(deadline - time.monotonic())

    def _check_regularly(self) -> None:
        looks = itertools.count()
        while not self._closing.wait(CHECK_SECONDS):
            is_due = next(looks) % EVIDENCE_EVERY == 0
            for pipeline in list(self._following):
                self._background.submit_latest(pipeline, functools.partial(self._check_follower, pipeline))
                if is_due:
                    self._submit_evidence(pipeline)

    def _check_follower(self, pipeline: str) -> None:
        if pipeline in self._following and not self._closing.is_set():  # else the last messages wait for it
            self._check(pipeline)

    def _check(self, pipeline: str) -> None:
        """Judge the pipeline as ``status`` does."""
        if explain_spark_only(self._project.pipeline(pipeline).source.table) is not None:
            return
        now = dt.datetime.now(dt.UTC)
        status = read_pipeline_status(self._project, pipeline, now=now, stuck_after=self._settings.stuck_after)
        # A pipeline may have been new when this process began
        found = find_incidents(status, self._settings, now, watched_for=now - self._began_at)
        self._report(pipeline, found, "status", unjudged=list_unjudged(status))

    # ── trails and the register of erasures ─────────────────────────────────────────────────────────────────────────

    def _submit_evidence(self, pipeline: str) -> None:
        kinds, limits = self._settings.kinds, self._settings
        if "not_anchored" in kinds and limits.max_unanchored is not None and has_anchors(self._project, pipeline):
            check = functools.partial(self._check_anchors, pipeline)
            self._evidence.submit_latest(f"trail of {pipeline}", check)  # no pipeline has the key of the register
        self._submit_register()

    def _submit_register(self) -> None:
        kinds, limits = self._settings.kinds, self._settings
        if "erasure_overdue" in kinds and limits.max_overdue_erasures is not None and self._project.erasure is not None:
            self._evidence.submit_latest("register", self._check_register)

    def _check_anchors(self, pipeline: str) -> None:
        def judge() -> Sequence[Incident] | None:
            coverage = read_anchoring(self._project, pipeline)
            if coverage is None:  # no trail yet, or its folder is lost
                return None
            return judge_anchoring(coverage, self._settings, dt.datetime.now(dt.UTC))

        self._judge_evidence(pipeline, "anchors", f"trail of {pipeline}", judge)

    def _check_register(self) -> None:
        # The requests belong to no pipeline: what was sent is remembered beside the first one, whichever runs
        first = next(iter(self._project.pipelines))
        self._judge_evidence(
            first, "register", "erasure requests", lambda: judge_erasures(count_overdue(self._project), self._settings)
        )

    def _judge_evidence(
        self, pipeline: str, origin: Origin, subject: str, judge: Callable[[], Sequence[Incident] | None]
    ) -> None:
        """``judge``: → None where nothing can be said."""
        unjudged: Collection[str] = ()
        try:
            found = judge()
        except CdfError as error:  # what cannot be read is unknown
            found, unjudged = judge_error(error), KINDS
        if found is None:
            return
        self._background.submit(
            lambda: self._report(pipeline, found, origin, unjudged=unjudged, subject=subject, part=origin)
        )

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _report(
        self,
        pipeline: str,
        found: Sequence[Incident],
        origin: Origin,
        *,
        unjudged: Collection[str] = (),
        subject: str | None = None,
        part: str = "incidents",
    ) -> None:
        """``subject``: what has the incidents, if it is not the pipeline. ``part``: where it is remembered."""
        memory = self._memories.setdefault((pipeline, part), Memory(self._project, pipeline, part))
        known = memory.change(lambda content: content)
        now, kinds = dt.datetime.now(dt.UTC), self._settings.kinds
        messages = find_messages(subject or pipeline, known, found, origin, kinds, now, unjudged=unjudged)
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
