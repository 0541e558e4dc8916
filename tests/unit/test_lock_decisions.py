"""What has become of a commit that was begun: decided from what is on S3, without S3."""

from __future__ import annotations

import pytest

from infra.s3.lock.evidence import Evidence, State, decide


@pytest.mark.parametrize(
    ("evidence", "state"),
    [
        (Evidence(temp=True, commit=False, age_seconds=59, first=0), "young"),
        (Evidence(temp=True, commit=False, age_seconds=60, first=0), "to_copy"),
        (Evidence(temp=True, commit=False, age_seconds=60, first=0, later=True), "to_copy"),
        (Evidence(temp=True, commit=False, age_seconds=60, first=0, previous=False), "blocked"),
        (Evidence(temp=False, commit=False, first=0, previous=False), "lost"),
        (Evidence(temp=True, commit=True, age_seconds=59), "young"),
        (Evidence(temp=True, commit=True, age_seconds=60), "to_mark"),
        (Evidence(temp=False, commit=True, age_seconds=60), "to_mark"),
        (Evidence(temp=True, commit=True, same=False, age_seconds=60), "foreign"),
        (Evidence(temp=False, commit=False, first=0), "lost"),
        (Evidence(temp=False, commit=False, first=0, later=True), "overtaken"),
        (Evidence(temp=False, commit=False), "dropped"),
        (Evidence(temp=True, commit=False, age_seconds=60), "dropped"),
        (Evidence(temp=True, commit=False, age_seconds=60, first=6, later=True, checkpoint=True), "expired"),
        (Evidence(temp=True, commit=False, age_seconds=60, first=6, later=True), "to_copy"),
        (Evidence(temp=False, commit=False, first=6, later=True), "overtaken"),
    ],
)
def test_version_five(evidence: Evidence, state: State) -> None:
    assert decide(5, evidence) == state


@pytest.mark.parametrize(
    ("evidence", "complete", "state"),
    [
        (Evidence(temp=True, commit=False, age_seconds=60), False, "to_copy"),
        (Evidence(temp=False, commit=False), False, "lost"),
        (Evidence(temp=False, commit=False, later=True), False, "dropped"),
        (Evidence(temp=False, commit=False), True, "dropped"),
        (Evidence(temp=True, commit=False, age_seconds=1), True, "dropped"),
    ],
)
def test_version_zero(evidence: Evidence, complete: bool, state: State) -> None:
    """Nothing in the log is where a table begins, unless its entry says that it was there already."""
    assert decide(0, evidence, complete=complete) == state


def test_the_age_that_counts_as_young_can_be_chosen() -> None:
    evidence = Evidence(temp=True, commit=False, age_seconds=5, first=0)
    assert [decide(5, evidence, young_seconds=seconds) for seconds in (5, 6)] == ["to_copy", "young"]
