"""What a commit file tells: size and number of the files that the feed reads, who, what, when."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from cdf.changes.commits import Commit, Protocol
from cdf.errors import SourceError
from cdf.source.commit import list_plain_files, missing_commits, parse_commit
from cdf.source.log_readers import LogListing

MODIFIED = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def lines(*actions: dict[str, Any]) -> str:
    return "\n".join(json.dumps(action, ensure_ascii=False) for action in actions) + "\n"


def parsed(*actions: dict[str, Any]) -> Commit:
    return parse_commit(4, lines(*actions), MODIFIED)


def file(size: int | None, **more: Any) -> dict[str, Any]:
    return {"path": "part-0", "dataChange": True, **({} if size is None else {"size": size}), **more}


def test_an_insert_reads_the_files_it_added() -> None:
    commit = parsed({"commitInfo": {"operation": "WRITE"}}, {"add": file(100)}, {"add": file(23)})
    assert (commit.change_files, commit.change_bytes) == (2, 123)


def test_an_overwrite_reads_added_and_removed_files() -> None:
    commit = parsed({"add": file(100)}, {"remove": file(50)}, {"remove": file(None)})
    assert (commit.change_files, commit.change_bytes) == (3, 150)


def test_change_files_replace_the_added_and_removed_ones() -> None:
    commit = parsed({"add": file(1_000)}, {"remove": file(2_000)}, {"cdc": {"path": "_change_data/x", "size": 30}})
    assert (commit.change_files, commit.change_bytes) == (1, 30)
    assert commit.atomic  # Delta's stream delivers them together
    assert not parsed({"add": file(1_000)}).atomic


def test_files_that_were_only_rearranged_are_not_read() -> None:
    commit = parsed(
        {"commitInfo": {"operation": "OPTIMIZE"}},
        {"add": file(100, dataChange=False)},
        {"remove": file(100, dataChange=False)},
    )
    assert (commit.change_files, commit.change_bytes) == (0, 0)


def test_a_commit_without_files_changes_nothing() -> None:
    commit = parsed({"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"txn": {"appId": "x", "version": 1}})
    assert (commit.operation, commit.change_files, commit.metadata) == ("SET TBLPROPERTIES", 0, None)


def test_who_did_what_and_why() -> None:
    commit = parsed(
        {
            "commitInfo": {
                "operation": "DELETE",
                "operationParameters": {"predicate": '["(id = 1)"]'},
                "userId": "17",
                "userName": "ada",
                "userMetadata": "request 42",
            }
        }
    )
    assert commit.operation == "DELETE"
    assert commit.parameters == {"predicate": '["(id = 1)"]'}
    assert (commit.user, commit.user_metadata) == ("ada", "request 42")


def test_the_users_number_where_there_is_no_name() -> None:
    assert parsed({"commitInfo": {"userId": "17"}}).user == "17"


def test_a_commit_that_says_nothing_of_itself() -> None:
    commit = parsed({"add": file(1)})
    assert (commit.operation, commit.parameters, commit.user, commit.user_metadata) == (None, {}, None, None)


def test_the_time_is_that_of_the_file() -> None:
    # commitInfo.timestamp is when the writer began; Delta does not go by it.
    assert parsed({"commitInfo": {"timestamp": 1}}).timestamp == MODIFIED


def test_an_in_commit_timestamp_comes_before_the_time_of_the_file() -> None:
    commit = parsed({"commitInfo": {"inCommitTimestamp": 1_700_000_000_123}})
    assert commit.timestamp == dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)


def test_new_metadata_is_read() -> None:
    action = {"id": "abc", "schemaString": SCHEMA, "configuration": {"delta.enableChangeDataFeed": "TRUE"}}
    metadata = parsed({"metaData": action}).metadata
    assert metadata is not None
    assert metadata.table_id == "abc"
    assert [(field.name, field.dataType.simpleString()) for field in metadata.schema.fields] == [("id", "bigint")]
    assert metadata.feed_enabled


def test_the_feed_is_off_unless_the_table_says_on() -> None:
    for configuration in ({}, {"delta.enableChangeDataFeed": "false"}):
        metadata = parsed({"metaData": {"id": "a", "schemaString": SCHEMA, "configuration": configuration}}).metadata
        assert metadata is not None
        assert not metadata.feed_enabled


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_unicode_line_separators_in_column_statistics_do_not_end_a_line(separator: str) -> None:
    stats = json.dumps({"maxValues": {"v": f"a{separator}b"}}, ensure_ascii=False)
    commit = parsed({"commitInfo": {"userMetadata": f"a{separator}b"}}, {"add": file(7, stats=stats)})
    assert (commit.user_metadata, commit.change_bytes) == (f"a{separator}b", 7)


def test_empty_lines_and_windows_line_ends_do_not_matter() -> None:
    text = '{"commitInfo":{"operation":"WRITE"}}\r\n\r\n{"add":{"size":5,"dataChange":true}}'
    commit = parse_commit(4, text, MODIFIED)
    assert (commit.operation, commit.change_bytes) == ("WRITE", 5)


@pytest.mark.parametrize("text", ['{"commitInfo":{"oper', '{"add":{}}\n\x00\x00\x00', "no json at all"])
def test_a_damaged_commit_file_is_named_and_not_skipped(text: str) -> None:
    with pytest.raises(SourceError, match="the commit file of version 4 is damaged") as caught:
        parse_commit(4, text, MODIFIED)
    assert caught.value.hint == "restore the file from a backup of the log"
    assert "oper" not in caught.value.message


# ── which commits there are ──────────────────────────────────────────────────────────────────────────────────────────


def listing(*versions: int, checkpoints: tuple[int, ...] = ()) -> LogListing:
    return LogListing(dict.fromkeys(versions, MODIFIED), frozenset(checkpoints))


def test_gaps_are_the_versions_missing_between_others() -> None:
    assert listing(2, 3, 6, 8).gaps == (4, 5, 7)
    assert listing(2, 3, 4).gaps == ()
    assert listing(2, 3, 6, 8).missing(1, 7) == [1, 4, 5, 7]


def test_the_earliest_version_is_the_one_after_the_last_gap() -> None:
    assert listing(0, 1, 2).earliest == 0
    assert listing(0, 1, 3, 4).earliest == 3


def test_a_version_can_be_read_from_the_first_checkpoint_after_a_gap() -> None:
    assert listing(0, 1, 2).readable == 0
    assert listing(0, 1, 3, 4, 5, checkpoints=(4,)).readable == 4
    assert listing(5, 6, 7, checkpoints=(5,)).readable == 5
    assert listing(5, 6, 7, checkpoints=(4,)).readable == 5
    assert listing(5, 6, 7, checkpoints=(2, 6)).readable == 6


def test_missing_commits_are_named_and_long_lists_shortened() -> None:
    error = missing_commits("t", [7])
    assert error.message == "the commit files of version 7 of t no longer exist: the changes in them cannot be read"
    error = missing_commits("t", list(range(200)))
    assert "version 0, 1, 2, 3, 4 … 199 of t" in error.message
    assert error.fields["versions"] == list(range(100))


def test_a_commit_names_its_writer_and_what_readers_must_support() -> None:
    commit = parsed(
        {"commitInfo": {"operation": "UPGRADE PROTOCOL", "engineInfo": "OtherEngine/7.1"}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["a"],
                "writerFeatures": ["a", "b"],
            }
        },
    )
    assert (commit.engine, commit.protocol) == ("OtherEngine/7.1", Protocol(3, 7, ("a",), ("a", "b")))
    older = parsed({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    assert (older.engine, older.protocol) == (None, Protocol(1, 2))
    assert parsed({"add": file(1)}).protocol is None


def test_plain_files_hold_exactly_the_changes_of_their_commit() -> None:
    write = {"commitInfo": {"operation": "WRITE"}}
    change = {"cdc": {"path": "_change_data/a%20b", "size": 30, "partitionValues": {}}}
    assert parsed(write, {"add": file(1)}).plain_files == ("part-0",)
    assert parsed({"add": file(1)}, {"remove": file(1)}, change).plain_files == ("_change_data/a b",)


@pytest.mark.parametrize(
    "actions",
    [
        [{"commitInfo": {"operation": "MERGE"}}, {"add": file(1)}],
        [{"commitInfo": {"operation": "WRITE"}}, {"add": file(1)}, {"remove": file(1)}],
        [{"commitInfo": {"operation": "WRITE"}}, {"add": file(1, deletionVector={"storageType": "u"})}],
        [{"commitInfo": {"operation": "WRITE"}}, {"add": file(1, partitionValues={"day": "1"})}],
        [{"commitInfo": {"operation": "WRITE"}}, {"add": file(1, path="s3://other/part-0")}],
        [{"commitInfo": {"operation": "WRITE"}}, {"add": file(1, path="/elsewhere/part-0")}],
        [{"commitInfo": {"operation": "WRITE"}}, {"add": file(1, path="../other/part-0")}],
        [{"cdc": {"path": "_change_data/x", "partitionValues": {"day": "1"}}}],
        [{"commitInfo": {"operation": "WRITE"}}, *[{"add": file(1)}] * 101],
    ],
)
def test_other_files_are_not_plain(actions: list[dict[str, Any]]) -> None:
    assert parsed(*actions).plain_files is None


def stats(rows: int, **more: Any) -> dict[str, Any]:
    return file(100, stats=json.dumps({"numRecords": rows, "minValues": {"id": 1}}, separators=(",", ":")), **more)


@pytest.mark.parametrize(
    ("operation", "metrics", "rows"),
    [
        ("MERGE", {"numTargetRowsInserted": "30"}, 190),
        ("MERGE", {}, 0),
        ("MERGE", {"numTargetRowsInserted": "300"}, 0),
        ("UPDATE", {}, 220),
        ("DELETE", {"numDeletedRows": "5"}, 220),
        ("WRITE", {"numOutputRows": "30"}, 0),
        (None, {}, 0),
    ],
)
def test_rows_that_were_written_and_not_inserted_were_there_before(
    operation: str | None, metrics: dict[str, str], rows: int
) -> None:
    commit = parsed(
        {"commitInfo": {"operation": operation, "operationMetrics": metrics}},
        {"add": stats(100)},
        {"add": stats(150, deletionVector={"storageType": "u", "cardinality": 30})},
        {"add": file(100)},  # without statistics
        {"add": file(100, stats='{"minValues":{"x":1,"numRecords":1000}}')},
        {"remove": stats(5_000)},
    )
    assert commit.rows_before == rows


def test_the_files_of_a_table_are_those_that_were_added_and_not_removed() -> None:
    texts = [
        lines({"metaData": {"id": "x"}}, {"add": file(1, path="a")}, {"add": file(2, path="b/c é")}),
        lines(
            {"commitInfo": {}}, {"remove": file(1, path="a")}, {"add": file(3, path="d")}, {"cdc": file(9, path="e")}
        ),
        lines({"remove": file(3, path="d")}, {"add": file(4, path="a")}),
    ]
    assert list_plain_files(texts) == [("b/c é", 2), ("a", 4)]
    assert list_plain_files(texts[:1]) == [("a", 1), ("b/c é", 2)]
    assert list_plain_files([]) == []


@pytest.mark.parametrize(
    "action",
    [
        {"add": file(1, deletionVector={"cardinality": 1})},
        {"remove": file(1, deletionVector={"cardinality": 1})},
        {"add": file(1, partitionValues={"day": "1"})},
        {"add": file(1, path="a%20b")},
        {"add": file(1, path="/elsewhere/a")},
        {"add": file(1, path="s3://bucket/a")},
        {"remove": file(1, path="../a")},
        {"add": file(1, path="./a")},
        {"remove": file(1, path="a//b")},
        {"add": file(1, path="a#b")},
        {"add": file(1, path="a?b")},
        {"add": {"path": "a"}},
        {"add": {"path": "a", "size": None}},
        {"add": {"size": 1}},
        {"add": "a"},
    ],
)
def test_only_delta_lists_the_files_of_other_tables(action: dict[str, Any]) -> None:
    assert list_plain_files([lines({"add": file(1)}), lines(action)]) is None


def test_only_delta_reads_a_damaged_log() -> None:
    assert list_plain_files([lines({"add": file(1)}), "{"]) is None
    assert list_plain_files([lines({"add": file(1)}), "[]"]) is None
