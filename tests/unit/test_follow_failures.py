"""What ended following, as an error: also where it is Spark's Java process that has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdf.errors import CdfError, SinkUnavailable, SourceError, SourceUnavailable
from cdf.interrupt import JVM_GONE
from cdf.pipeline.follow_failures import describe_failure


class EndedJava:
    """A session whose gateway is closed."""

    @property
    def _jvm(self) -> Any:
        raise ConnectionRefusedError


@pytest.mark.parametrize("error", [SourceError("a commit file is damaged"), ConnectionRefusedError()])
def test_the_end_of_java_is_named_although_reading_the_log_blames_the_log(error: Exception) -> None:
    found = describe_failure(error, cast("Any", EndedJava()), "t", 3)
    assert (type(found), found.condition, found.__cause__) == (SourceError, JVM_GONE, error)
    assert "Java process has ended" in found.message


@pytest.mark.parametrize("error", [SinkUnavailable("gone"), SourceUnavailable("gone")])
def test_other_errors_keep_their_names(error: CdfError) -> None:
    assert describe_failure(error, cast("Any", EndedJava()), "t", 3) is error
