"""What monitoring remembers between processes: beside the position, and in a file while the target is unreachable."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError
from cdf.sink import Controllable, Controls

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Change", "Memory"]

Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The next content of a part, from its present one."""

log = logging.getLogger("deltarelay.monitoring")


class Memory:
    """One ``part`` of what is remembered about a pipeline: a mapping with plain values.

    It is stored where the runner's decisions are (``Controls``), so that runs on several machines share it. While the target
    is unreachable, it is stored in the folder of the user's state; that file is merged into the target as soon as possible.
    """

    def __init__(self, project: Project, pipeline: str, part: str) -> None:
        self._project, self._pipeline, self._part = project, pipeline, part
        self._known: Mapping[str, Any] = {}
        """Used where not even a file can be written."""

    def change(self, change: Change) -> Mapping[str, Any]:
        """→ the new content"""
        try:
            sink = self._project.build_sink(self._pipeline)
            if not isinstance(sink, Controllable):
                return self._change_file(change)
            self._known = self._change_controls(sink, change)
        except CdfError as error:
            log.debug("remembered in a file", extra={"pipeline": self._pipeline, "error": error.code})
            return self._change_file(change)
        with suppress(OSError):
            self._file().unlink(missing_ok=True)
        return self._known

    def _change_controls(self, sink: Controllable, change: Change) -> Mapping[str, Any]:
        local = self._read_file()

        def change_part(controls: Controls) -> Controls:
            changed = dict(change(_merge(controls.monitoring.get(self._part, {}), local)))
            return replace(controls, monitoring={**controls.monitoring, self._part: changed})

        # Read first: most changes change nothing, and reading takes no lock
        controls = sink.controls()
        changed = change_part(controls)
        if changed.monitoring[self._part] != controls.monitoring.get(self._part, {}):
            changed = sink.change_controls(change_part)
        content: Mapping[str, Any] = changed.monitoring[self._part]
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
