"""What the commands of the trail keep, compare and end with: without tables, so without Spark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

from audit.anchors.base import AnchorFailure
from audit.audit_trail import Trail
from audit.errors import AnchorUnavailable
from audit.trail.column_history import Column
from audit.trail.position import read_position
from audit.verification import NOT_COVERED, TrailVerification, VerifiedState
from cdf.errors import ConfigError, SinkUnavailable, VerificationError
from infra.cli.commands.audit.trails import combine_trail_codes, escape_unprintable, translate_read_errors
from infra.cli.commands.audit.verification.summary import report_unreachable_anchors
from infra.diagnostics.verified_state import VerifiedStateFile
from infra.output import DIFFERENCE, DONE, FAILED, TEMPORARY, Output

KNOWN = VerifiedState(
    "deltarelay.audit/one", 0, (), bytes(32), 4, None, 0, (Column("id", "id", LongType()),), 0, 0, None, None
)
FOUND = TrailVerification(
    "trail", KNOWN.origin, "full", True, 0, 4, None, None, None, 5, 9, 9, 0, 0, 0, not_covered=NOT_COVERED
)


def test_what_was_verified_is_kept_by_the_place_of_the_trail(tmp_path: Path) -> None:
    kept, output = VerifiedStateFile(tmp_path / "state", str(tmp_path / "trail")), Output("audit verify")
    assert kept.read() is None
    kept.write(KNOWN.to_json(), output)
    assert VerifiedStateFile(tmp_path / "state", f"{tmp_path}/other/../trail").read() == KNOWN
    assert VerifiedStateFile(tmp_path / "state", str(tmp_path / "other")).read() is None
    kept.file.write_text("[]")
    with pytest.raises(ConfigError, match="is not a state file of"):
        kept.read()


def test_who_finds_another_trail_is_told_what_to_remove_where_that_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, output = VerifiedStateFile(tmp_path, "trail"), Output("audit verify")
    kept.report_replaced_trail("p", None, FOUND, output)
    kept.report_replaced_trail("p", KNOWN, FOUND, output)
    assert capsys.readouterr().err == ""
    kept.report_replaced_trail("p", KNOWN, dataclasses.replace(FOUND, origin="deltarelay.audit/another"), output)
    assert str(kept.file) in capsys.readouterr().err


def test_an_anchor_that_cannot_be_asked_is_a_failure_and_hides_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output("audit report")
    missed = (AnchorFailure("s3://anchors", AnchorUnavailable("no answer")),)
    assert report_unreachable_anchors(output, "p", FOUND) == DONE
    assert report_unreachable_anchors(output, "p", dataclasses.replace(FOUND, unreachable=missed)) == FAILED
    assert (
        report_unreachable_anchors(output, "p", dataclasses.replace(FOUND, unreachable=missed, intact=False))
        == DIFFERENCE
    )
    assert capsys.readouterr().err.count("no answer") == 2


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], DONE),
        ([DONE, DONE], DONE),
        ([FAILED, DIFFERENCE, DONE], DIFFERENCE),
        ([TEMPORARY, DIFFERENCE], DIFFERENCE),
        ([DONE, TEMPORARY], TEMPORARY),
        ([FAILED, TEMPORARY], FAILED),
    ],
)
def test_of_several_trails_a_finding_counts_most(codes: list[int], code: int) -> None:
    assert combine_trail_codes(codes) == code


@pytest.mark.parametrize("error", [KeyError("name"), TypeError(), ValueError(), IndexError(), AttributeError()])
def test_a_trail_that_has_another_form_says_so(error: Exception) -> None:
    trail = Trail(cast(SparkSession, None), "/data/trail")
    with (
        pytest.raises(VerificationError, match=f"/data/trail cannot be read .{type(error).__name__}"),
        translate_read_errors(trail),
    ):
        raise error
    ours = ConfigError("one of ours stays what it is")
    with pytest.raises(ConfigError), translate_read_errors(trail):
        raise ours


def test_a_name_steers_no_terminal() -> None:
    assert escape_unprintable("a\x1b[2Jb\u202e") == r"a\x1b[2Jb\u202e"


def test_a_folder_that_cannot_be_looked_at_is_no_empty_trail() -> None:
    with pytest.raises(SinkUnavailable):
        read_position("/tmp/" + 300 * "x")
