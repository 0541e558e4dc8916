"""What monitoring remembers between processes: beside the position, and in a file while the target is unreachable."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cdf.errors import CdfError
from cdf.sink import Controllable, Controls

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Change", "Memory"]

Content = TypeVar("Content")
Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The next content of a part, from its present one."""

TARGET_SECONDS = 4.0
AWAY_SECONDS = 30.0
"""A target that was unreachable is not asked again for this time: other pipelines of its connection do not wait for it."""
_away_until: dict[str, float] = {}
"""By connection."""

log = logging.getLogger("deltarelay.monitoring")


class Memory:
    """One ``part`` of what is remembered about a pipeline: a mapping with plain values.

    It is stored where the runner's decisions are (``Controls``), so that runs on several machines share it. While the target
    is unreachable, it is stored in the folder of the user's state; that file is merged into the target as soon as possible.

    ``reads_first``: most changes change nothing, and reading takes no lock. Otherwise each change costs one connection less.
    """

    def __init__(self, project: Project, pipeline: str, part: str, *, reads_first: bool = True) -> None:
        self._project, self._pipeline, self._part, self._reads_first = project, pipeline, part, reads_first
        self._known: Mapping[str, Any] = {}
        """Used where not even a file can be written."""

    def change(self, change: Change) -> Mapping[str, Any]:
        """→ the new content. Takes a few seconds at most."""
        connection = self._project.pipeline(self._pipeline).sink.connection
        if time.monotonic() >= _away_until.get(connection, 0):
            try:
                content = _call_briefly(lambda: self._change_target(change))
            except (CdfError, TimeoutError) as error:
                log.debug("remembered in a file", extra={"pipeline": self._pipeline, "error": type(error).__name__})
                _away_until[connection] = time.monotonic() + AWAY_SECONDS
            else:
                if content is not None:
                    with suppress(OSError):
                        self._file().unlink(missing_ok=True)
                    self._known = content
                    return content
        return self._change_file(change)

    def _change_target(self, change: Change) -> Mapping[str, Any] | None:
        """None: the sink stores nothing for others."""
        sink = self._project.build_sink(self._pipeline)
        return self._change_controls(sink, change) if isinstance(sink, Controllable) else None

    def _change_controls(self, sink: Controllable, change: Change) -> Mapping[str, Any]:
        local = self._read_file()

        def change_part(controls: Controls) -> Controls:
            changed = dict(change(_merge(controls.monitoring.get(self._part, {}), local)))
            return replace(controls, monitoring={**controls.monitoring, self._part: changed})

        content: Mapping[str, Any]
        if self._reads_first:
            controls = sink.controls()
            content = change_part(controls).monitoring[self._part]
            if content == controls.monitoring.get(self._part, {}):
                return content
        content = sink.change_controls(change_part).monitoring[self._part]
        return content

    def _change_file(self, change: Change) -> Mapping[str, Any]:
        local = self._read_file()
        before = _merge(self._known, local)
        self._known = change(before)
        # What was removed is written as null: the target may still have it
        removed = dict.fromkeys(name for name in {**before, **local} if name not in self._known)
        try:
            file = self._file()
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = file.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps({**removed, **self._known}), encoding="utf-8")
            new.replace(file)
        except OSError as error:
            log.debug("not remembered", extra={"pipeline": self._pipeline, "error": type(error).__name__})
        return self._known

    def _read_file(self) -> Mapping[str, Any]:
        with suppress(OSError, ValueError):
            content = json.loads(self._file().read_text(encoding="utf-8"))
            return content if isinstance(content, dict) else {}
        return {}

    def _file(self) -> Path:
        base = os.environ.get("XDG_STATE_HOME")
        folder = Path(base) if base else Path("~/.local/state").expanduser()
        source, target = self._project.pipeline(self._pipeline).source.table, self._project.targets()[self._pipeline]
        name = hashlib.sha256(f"{self._pipeline} {source} {target}".encode()).hexdigest()[:16]
        return folder / "deltarelay" / f"{self._part}-{name}.json"


def _merge(stored: Mapping[str, Any], local: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in {**stored, **local}.items() if value is not None}


def _call_briefly(call: Callable[[], Content]) -> Content:
    """Raises TimeoutError after ``TARGET_SECONDS``: sinks wait longer for a server that does not answer.

    The call goes on in its thread, which does no harm: a change has the same effect if it is made twice.
    """
    done: queue.SimpleQueue[Content | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put(call())
        except Exception as error:
            done.put(error)

    threading.Thread(target=run, name="memory", daemon=True).start()
    try:
        result = done.get(timeout=TARGET_SECONDS)
    except queue.Empty:
        raise TimeoutError("the target did not answer in time") from None
    if isinstance(result, Exception):
        raise result
    return result
