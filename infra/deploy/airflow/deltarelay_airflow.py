"""Operator, triggers and sensor for Airflow 3: copy this file into the `plugins` folder. Guide: docs/deploy/airflow.md"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

PROGRAM = "/opt/deltarelay/bin/deltarelay"
FINAL = (1, 2, 3)
"""Exit codes that no retry changes: failed, configuration, a difference or a brake."""
GRACE_SECONDS = 60
"""After SIGTERM the running window may finish."""


def select_pipelines(config: str, pipelines: Sequence[str]) -> list[str]:
    return ["--config", config, "--json", *(word for name in pipelines for word in ("-p", name))]


def read_entries(printed: bytes) -> list[dict[str, Any]]:
    """The pipelines of the document that a command prints with --json."""
    document = json.loads(printed) if printed.strip() else {}
    return (document.get("result") or {}).get("pipelines") or []


class LeaseTrigger(BaseTrigger):
    """Fires when no runner holds the lease of any of the pipelines. Starts no JVM."""

    def __init__(self, program: str, config: str, pipelines: Sequence[str], poll_seconds: float) -> None:
        super().__init__()
        self.settings = {"program": program, "config": config, "pipelines": [*pipelines], "poll_seconds": poll_seconds}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.LeaseTrigger", self.settings

    async def run(self) -> AsyncIterator[TriggerEvent]:
        one = self.settings
        command = [one["program"], "position", "show", *select_pipelines(one["config"], one["pipelines"])]
        while True:
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            entries = read_entries((await process.communicate())[0])
            # A position that could not be read shows no holder either
            if process.returncode == 0 and not any(entry["lease_holder"] for entry in entries):
                yield TriggerEvent({})
                return
            await asyncio.sleep(one["poll_seconds"])


class DeltaRelayOperator(BaseOperator):
    """Runs `deltarelay run`, or another command, on the worker, and returns the position of each pipeline.

    Exit codes 1, 2 and 3 fail without a retry; all others, above all 75 (temporary), are retried as often as `retries` says.
    If another runner holds the lease, for example the process of an earlier attempt whose worker was lost, the task waits
    until that has ended, without a worker slot (deferred), and then runs again. If the task is stopped or times out,
    deltarelay gets SIGTERM, and after a minute SIGKILL.
    """

    template_fields = ("config", "pipelines")

    def __init__(
        self,
        *,
        config: str = "/etc/deltarelay/deltarelay.yaml",
        pipelines: Sequence[str] = (),
        command: str = "run",
        program: str = PROGRAM,
        poll_seconds: float = 30,
        lease_timeout: timedelta = timedelta(hours=6),
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.config, self.pipelines, self.command, self.program = config, pipelines, command, program
        self.poll_seconds, self.lease_timeout = poll_seconds, lease_timeout
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Any, event: Any = None) -> dict[str, int | None]:  # noqa: ARG002
        words = [self.program, self.command, *select_pipelines(self.config, self.pipelines)]
        # A group of its own: it is stopped with the JVM, and no signal reaches it by accident
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        try:
            printed, _ = self._process.communicate()
        except BaseException:  # the task times out
            self.on_kill()
            raise
        code, entries = self._process.returncode, read_entries(printed)
        # A paused pipeline is ok, although it has an error
        errors = [entry["error"] for entry in entries if not entry["ok"] and entry.get("error")]
        for error in errors:
            self.log.error("%s (%s)", error["message"], error["code"])
        if code == 0:
            return {entry["pipeline"]: entry.get("position") for entry in entries}
        if code == 75 and errors and all(error["code"] == "lease_held" for error in errors):
            trigger = LeaseTrigger(self.program, self.config, self.pipelines, self.poll_seconds)
            self.defer(trigger=trigger, method_name="execute", timeout=self.lease_timeout)
        failure = AirflowFailException if code in FINAL else AirflowException
        raise failure(f"deltarelay {self.command} ended with exit code {code}")

    def on_kill(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class DeltaVersionTrigger(BaseEventTrigger):
    """Fires for each version of a Delta table after `after`: once at the start, then whenever there is a newer one.

    Reads the log with delta-rs: `pip install deltalake` in the environment of Airflow. No JVM.
    """

    def __init__(
        self,
        table: str,
        after: int = -1,
        poll_seconds: float = 30,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.settings = {
            "table": table,
            "after": int(after),
            "poll_seconds": poll_seconds,
            "storage_options": storage_options,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.DeltaVersionTrigger", self.settings

    def read_version(self) -> int:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            options = self.settings["storage_options"]
            return DeltaTable(self.settings["table"], storage_options=options, without_files=True).version()
        except (DeltaError, OSError) as error:  # not there yet, or the storage does not answer
            self.log.warning("%s cannot be read: %s", self.settings["table"], type(error).__name__)
            return -1

    async def run(self) -> AsyncIterator[TriggerEvent]:
        seen = self.settings["after"]
        while True:
            version = await asyncio.to_thread(self.read_version)
            if version > seen:
                seen = version
                yield TriggerEvent({"table": self.settings["table"], "version": version})
            await asyncio.sleep(self.settings["poll_seconds"])


class DeltaVersionSensor(BaseSensorOperator):
    """Waits, without a worker slot, for a version of the table after `after`, and returns that version."""

    template_fields = ("table", "after")

    def __init__(
        self,
        *,
        table: str,
        after: int | str | None = None,
        poll_seconds: float = 30,
        storage_options: dict[str, str] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.table, self.after, self.poll_seconds, self.storage_options = table, after, poll_seconds, storage_options

    def execute(self, context: Any, event: dict[str, Any] | None = None) -> int | None:  # noqa: ARG002
        if event is not None:
            return event["version"]
        after = -1 if self.after in (None, "", "None") else int(self.after)  # a template of no earlier run
        trigger = DeltaVersionTrigger(self.table, after, self.poll_seconds, self.storage_options)
        self.defer(trigger=trigger, method_name="execute", timeout=timedelta(seconds=self.timeout))
        return None  # not reached: deferring is an exception
