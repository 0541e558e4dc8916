"""Which of Delta's options a stream of the feed takes; everything that Delta would ignore is refused with its reason."""

from __future__ import annotations

import pytest

from cdf.errors import ConfigError
from cdf.source.stream_reader import check_options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failOnDataLoss", True),
        ("excludeRegex", "part-0"),
        ("schemaTrackingLocation", "/checkpoint/schema"),
        ("schemaLocation", "/checkpoint/schema"),
        ("streamingSourceTrackingId", "orders"),
        ("allowSourceColumnRename", "always"),
        ("allowSourceColumnDrop", "7"),
        ("allowSourceColumnTypeChange", "always"),
    ],
)
def test_what_delta_honours_passes_through(option: str, value: object) -> None:
    assert check_options({option: value}) == {option: value}


def test_options_are_known_in_any_case() -> None:
    assert check_options({"EXCLUDEREGEX": "x", "failondataloss": "TRUE"}) == {
        "excludeRegex": "x",
        "failOnDataLoss": "TRUE",
    }


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("endingVersion", "a stream of the feed has no end"),
        ("endingTimestamp", "a stream of the feed has no end"),
        ("ignoreDeletes", "the feed has deletes as rows"),
        ("ignoreChanges", "the feed has changes as rows"),
        ("skipChangeCommits", "the feed has changes as rows"),
        ("withEventTimeOrder", "open-source Delta does not implement it"),
        ("versionAsOf", "a stream does not support time travel; use start_version"),
        ("timestampAsOf", "a stream does not support time travel; use start_timestamp"),
    ],
)
def test_what_delta_ignores_with_the_feed_is_refused_with_the_reason(option: str, reason: str) -> None:
    for spelled in (option, option.lower()):
        with pytest.raises(ConfigError) as caught:
            check_options({spelled: "1"})
        assert f"{option} has no effect with the change feed: {reason}" in caught.value.message
        assert caught.value.hint == "leave them out"


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("startingVersion", "start_version"),
        ("startingTimestamp", "start_timestamp"),
        ("maxFilesPerTrigger", "max_files_per_trigger"),
        ("maxBytesPerTrigger", "max_bytes_per_trigger"),
        ("readChangeFeed", "no option, because it is always on"),
        ("readChangeData", "no option, because it is always on"),
    ],
)
def test_what_has_a_parameter_of_its_own_is_named(option: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: use {instead}"):
        check_options({option: "1"})


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("startVersion", "start_version"),
        ("startingVersoin", "start_version"),
        ("excludeRegx", "excludeRegex"),
        ("maxFilesPerTriger", "max_files_per_trigger"),
    ],
)
def test_a_mistyped_option_is_refused_and_the_right_one_named(option: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options({option: "1"})
    unknown = f"{option}: unknown, and Delta ignores unknown options (did you mean {meant}?)"
    assert caught.value.message == f"the stream's options cannot be used: {unknown}"


def test_an_option_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigError) as caught:
        check_options({"zzz": "1"})
    assert "did you mean" not in caught.value.message


@pytest.mark.parametrize("value", [False, "false", "FALSE", "no"])
def test_missing_commits_cannot_be_skipped(value: object) -> None:
    with pytest.raises(ConfigError, match="failOnDataLoss=false silently skips missing commits"):
        check_options({"failOnDataLoss": value})


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check_options({"endingVersion": 1, "zzz": 2, "startingVersion": 3, "excludeRegex": "x"})
    for name in ("endingVersion", "zzz", "startingVersion"):
        assert name in caught.value.message
    assert "excludeRegex" not in caught.value.message
