"""The core of deltarelay: the change feed of a Delta table, carried to a sink in whole commits, exactly once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdf.changes.commits import Commit, Limits
    from cdf.changes.window import Snapshot, Window
    from cdf.errors import CdfError
    from cdf.pipeline.brakes import Brakes
    from cdf.pipeline.follow import Following
    from cdf.pipeline.pipeline import Pipeline
    from cdf.results import Followed, FollowStatus, Plan, RunResult, Step
    from cdf.sink import Applied, Capabilities, Conflicts, Inspection, Position, Sink, Source
    from cdf.source.table import ChangeFeed, FeedEnabled, FeedStatus
    from cdf.verify.verify import Difference, Verification

__all__ = [
    "ChangeFeed",
    "Pipeline",
    "Limits",
    "Brakes",
    "FeedEnabled",
    "FeedStatus",
    "Plan",
    "Step",
    "RunResult",
    "Following",
    "Followed",
    "FollowStatus",
    "Verification",
    "Difference",
    "Sink",
    "Source",
    "Capabilities",
    "Position",
    "Inspection",
    "Applied",
    "Conflicts",
    "Window",
    "Snapshot",
    "Commit",
    "CdfError",
]

_HOMES = {
    "cdf.errors": ("CdfError",),
    "cdf.pipeline.pipeline": ("Pipeline",),
    "cdf.pipeline.brakes": ("Brakes",),
    "cdf.pipeline.follow": ("Following",),
    "cdf.results": ("Followed", "FollowStatus", "Plan", "RunResult", "Step"),
    "cdf.sink": ("Applied", "Capabilities", "Conflicts", "Inspection", "Position", "Sink", "Source"),
    "cdf.source.table": ("ChangeFeed", "FeedEnabled", "FeedStatus"),
    "cdf.verify.verify": ("Difference", "Verification"),
    "cdf.changes.commits": ("Commit", "Limits"),
    "cdf.changes.window": ("Snapshot", "Window"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imported when asked for: `deltarelay --help` and `status` need neither PySpark nor pyarrow, only the errors."""
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'cdf' has no attribute {name!r}")
