"""Errors of erasures that several parts raise."""

from __future__ import annotations

from cdf.errors import CdfError

__all__ = ["SinkBehind"]


class SinkBehind(CdfError):
    """Sinks have not passed the erasing commits yet."""

    code = "sink_behind"
    transient = True
