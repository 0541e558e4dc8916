"""Commits that dead writers left in the lock table: listed, finished, explained, forgotten; on moto's server."""

from __future__ import annotations

import threading
import time

import pytest

from cdf.errors import ConfigError, SourceUnavailable, TargetNotReady
from infra.s3.errors import READ_SECONDS
from infra.s3.lock.entries import read_entries
from infra.s3.lock.evidence import State
from infra.s3.lock.repair import KEPT_SECONDS, LockRepair, forget, repair
from infra.s3.lock.table import create
from infra.s3.model import Storage
from tests.acceptance.commands import wait_for
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import Aws
from tests.integration.lock_case import Commits, file_of

HELD_SECONDS = READ_SECONDS - 1
"""A request is held for that long at most: then the client gives up."""


@pytest.fixture
def storage(aws: Aws) -> Storage:
    create(aws.storage())
    return aws.storage()


@pytest.fixture
def table(aws: Aws, storage: Storage) -> Commits:
    """Versions 0 and 1, as they should be."""
    return Commits(aws).commit(0, 1)


def states(storage: Storage) -> list[tuple[int | None, State]]:
    return [(one.version, one.state) for one in read_entries(storage, young_seconds=0).open]


def done(found: LockRepair) -> list[tuple[int | None, str, str]]:
    return [(one.version, one.state, one.outcome) for one in found.entries]


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_in_order(aws: Aws, storage: Storage, table: Commits) -> None:
    Commits(aws, "sub/other").commit(0)
    found = read_entries(storage)
    assert (found.lock_table, found.region, found.open, found.clashes) == (aws.lock_table, "eu-west-1", (), ())
    assert [(one.table, one.entries, one.latest_complete) for one in found.tables] == [
        (f"s3a://{aws.bucket}/sub/other", 1, 0),
        (f"s3a://{aws.bucket}/t", 2, 1),
    ]
    assert found.tables[0].expires_at is not None
    assert found.sound
    assert [one.table for one in read_entries(storage, f"s3://{aws.bucket}/t/").tables] == [table.path]


def test_an_empty_lock_table(storage: Storage) -> None:
    assert read_entries(storage).tables == ()


def test_the_age_of_an_entry_is_that_of_its_temporary_file(storage: Storage, table: Commits) -> None:
    table.temp(2)
    table.claim(2)
    time.sleep(1.1)
    (found,) = read_entries(storage).open
    assert (found.version, found.state) == (2, "young")
    assert found.age_seconds is not None
    assert 1 <= found.age_seconds < 30
    assert read_entries(storage).sound, "a writer at work is no fault"
    table.remove(table.temps[2])
    (found,) = read_entries(storage).open
    assert (found.state, found.age_seconds) == ("lost", None)


def test_two_spellings_of_one_table_are_pointed_out(aws: Aws, storage: Storage, table: Commits) -> None:
    Commits(aws, scheme="s3").commit(1)
    Commits(aws, "elsewhere", scheme="s3").commit(0)
    found = read_entries(storage)
    assert found.clashes == ((f"s3://{aws.bucket}/t", f"s3a://{aws.bucket}/t"),)
    assert not found.sound
    assert read_entries(storage, table.path).clashes == found.clashes


def test_a_table_that_cannot_be_looked_at_hides_no_other(aws: Aws, storage: Storage, table: Commits) -> None:
    table.temp(2)
    table.claim(2)
    Commits(aws, "x").claim(0, tablePath="s3a://no-such-bucket-anywhere/x")
    Commits(aws, "y").claim(0, tablePath="file:///y")
    table.claim(7, fileName="something else")
    found = {(one.table, one.file): one.state for one in read_entries(storage, young_seconds=0).open}
    assert found == {
        ("file:///y", file_of(0)): "unseen",
        ("s3a://no-such-bucket-anywhere/x", file_of(0)): "unseen",
        (table.path, file_of(2)): "to_copy",
        (table.path, "something else"): "unseen",
    }


def test_an_encoded_address_is_not_guessed_at(aws: Aws, storage: Storage) -> None:
    """The log would look as if it were gone, and its entries as if they could go."""
    encoded = Commits(aws, "my%20table")
    encoded.complete(0)
    Commits(aws, "my table").copy(0)
    assert states(storage) == [(0, "unseen")]
    with pytest.raises(ConfigError, match="contains a %"):
        forget(storage, encoded.path)
    assert encoded.is_complete(0)


# ── crash states: what list says, what repair does, what is there then ───────────────────────────────────────────────


def test_died_before_the_copy(storage: Storage, table: Commits) -> None:
    table.temp(2, b"what was promised\n")
    table.claim(2)
    assert states(storage) == [(2, "to_copy")]
    before = int(time.time())
    found = repair(storage, young_seconds=0)
    assert (done(found), found.whole) == ([(2, "to_copy", "copied")], True)
    assert table.files()[file_of(2)] == b"what was promised\n"
    entry = table.entry(2)
    assert entry is not None
    assert (entry["complete"], entry["tempPath"]) == ("true", table.temps[2])
    assert before + KEPT_SECONDS <= int(entry["expireTime"]) <= time.time() + KEPT_SECONDS
    assert repair(storage, young_seconds=0).entries == ()
    assert states(storage) == []


def test_died_before_the_entry_was_completed(storage: Storage, table: Commits) -> None:
    table.temp(2)
    table.claim(2)
    table.copy(2)
    assert states(storage) == [(2, "to_mark")]
    assert done(repair(storage, young_seconds=0)) == [(2, "to_mark", "marked")]
    assert table.is_complete(2)


def test_the_commit_is_there_and_the_temporary_file_is_gone(storage: Storage, table: Commits) -> None:
    table.claim(2)
    table.copy(2)
    assert states(storage) == [(2, "to_mark")]
    assert repair(storage, young_seconds=0).whole
    assert table.is_complete(2)


def test_an_orphan_temporary_file_needs_nobody(storage: Storage, table: Commits) -> None:
    table.temp(2)
    before = table.files()
    assert (states(storage), repair(storage, young_seconds=0).entries) == ([], ())
    assert table.files() == before


def test_a_first_commit_that_was_not_finished(aws: Aws, storage: Storage) -> None:
    table = Commits(aws, "new")
    table.temp(0)
    table.claim(0)
    assert done(repair(storage, young_seconds=0)) == [(0, "to_copy", "copied")]
    assert list(table.commits()) == [file_of(0)]


def test_a_table_that_is_a_whole_bucket(aws: Aws, storage: Storage) -> None:
    table = Commits(aws, "")
    item = {"tablePath": f"s3a://{aws.bucket}/"}
    temp = f".tmp/{file_of(0)}.x"
    aws.s3.put_object(Bucket=aws.bucket, Key=f"_delta_log/{temp}", Body=b"first\n")
    table.temps[0] = temp
    table.claim(0, **item)
    assert done(repair(storage, f"s3a://{aws.bucket}", young_seconds=0)) == [(0, "to_copy", "copied")]
    assert aws.s3.get_object(Bucket=aws.bucket, Key=f"_delta_log/{file_of(0)}")["Body"].read() == b"first\n"


def test_a_live_writer_is_left_alone(storage: Storage, table: Commits) -> None:
    table.temp(2)
    table.claim(2)
    found = repair(storage)
    assert (done(found), found.whole) == ([(2, "young", "left")], True)
    assert not table.is_complete(2)
    assert file_of(2) not in table.files()


def test_a_lost_commit_is_explained_and_dropped_only_when_asked(storage: Storage, table: Commits) -> None:
    table.claim(2)
    assert states(storage) == [(2, "lost")]
    found = repair(storage, young_seconds=0)
    assert (done(found), found.whole) == ([(2, "lost", "left")], False)
    assert "--drop-lost" in str(found.entries[0].advice)
    assert table.entry(2) is not None
    dropped = repair(storage, young_seconds=0, lost="drop")
    assert (done(dropped), dropped.whole) == ([(2, "lost", "removed")], False)
    assert "run the job of this commit again" in str(dropped.entries[0].advice)
    assert table.entry(2) is None
    assert table.is_complete(1), "only the lost one goes"
    assert states(storage) == []


def test_a_lost_commit_that_delta_rs_took_for_complete(storage: Storage, table: Commits) -> None:
    """It completes an entry whose temporary file is gone without a look at the commit."""
    table.complete(2)
    assert states(storage) == [(2, "lost")]
    assert read_entries(storage).open[0].complete
    assert done(repair(storage, lost="drop")) == [(2, "lost", "removed")]
    assert (table.entry(2), states(storage)) == (None, [])


@pytest.mark.parametrize("temp", [True, False])
def test_a_lost_commit_with_later_ones_is_never_dropped(storage: Storage, table: Commits, temp: bool) -> None:
    table.claim(2)
    table.copy(3)
    if temp:
        table.complete(3)
    assert states(storage) == [(2, "overtaken")]
    assert done(repair(storage, young_seconds=0, lost="drop")) == [(2, "overtaken", "left")]
    assert table.entry(2) is not None


def test_several_of_them_are_finished_in_their_order(storage: Storage, table: Commits) -> None:
    for version in (4, 3, 2):
        table.temp(version)
        table.claim(version)
    assert done(repair(storage, young_seconds=0)) == [(version, "to_copy", "copied") for version in (2, 3, 4)]
    assert sorted(table.commits()) == [file_of(version) for version in range(5)]


def test_behind_a_lost_one_nothing_is_finished_or_dropped(storage: Storage, table: Commits) -> None:
    """So delta-rs leaves it: it takes the lost version for complete, and goes on after it."""
    table.complete(2)
    table.temp(3)
    table.claim(3)
    before = table.files()
    assert states(storage) == [(3, "blocked")]
    found = repair(storage, young_seconds=0, lost="drop")
    assert (done(found), found.whole) == ([(3, "blocked", "left")], False)
    table.claim(2)
    assert states(storage) == [(2, "overtaken"), (3, "blocked")]
    assert {one.outcome for one in repair(storage, young_seconds=0, lost="drop").entries} == {"left"}
    assert table.files() == before
    table.copy(2)
    assert repair(storage, young_seconds=0).whole
    assert (table.is_complete(2), table.is_complete(3)) == (True, True)
    assert file_of(3) in table.files()


def test_a_version_that_the_log_has_cleaned_up(storage: Storage, table: Commits) -> None:
    table.temp(1)
    table.claim(1)
    table.remove(file_of(0), file_of(1))
    table.put(f"{2:020d}.checkpoint.parquet", b"")
    table.commit(2, 3)
    assert states(storage) == [(1, "expired")]
    assert done(repair(storage, young_seconds=0)) == [(1, "expired", "marked")]
    assert table.is_complete(1)
    assert file_of(1) not in table.files(), "an old version was put back into a log that starts after it"


def test_a_gap_is_closed_while_the_temporary_file_is_there(storage: Storage, table: Commits) -> None:
    table.temp(2)
    table.claim(2)
    table.commit(3)
    assert done(repair(storage, young_seconds=0)) == [(2, "to_copy", "copied")]
    assert sorted(table.commits()) == [file_of(version) for version in range(4)]


def test_a_version_written_by_a_stranger_is_told_and_kept(storage: Storage, table: Commits) -> None:
    table.temp(2, b"ours 2\n")
    table.claim(2)
    table.copy(2, b"theirs\n")
    assert states(storage) == [(2, "foreign")]
    found = repair(storage, young_seconds=0)
    assert (done(found), found.whole) == ([(2, "foreign", "marked")], False)
    assert "another writer, which does not use this lock table" in str(found.entries[0].advice)
    assert table.files()[file_of(2)] == b"theirs\n"
    assert table.is_complete(2)


def test_only_the_table_that_was_named(aws: Aws, storage: Storage, table: Commits) -> None:
    other = Commits(aws, "other").commit(0)
    for one in (table, other):
        one.temp(2)
        one.claim(2)
    other.copy(1)
    repair(storage, f"s3://{aws.bucket}/t/", young_seconds=0)
    assert (table.is_complete(2), other.is_complete(2)) == (True, False)
    assert file_of(2) not in other.files()


# ── races ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("content", "state"), [(b"commit 2\n", "to_mark"), (b"stranger\n", "foreign")])
def test_the_commit_appears_before_the_copy(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy, content: bytes, state: str
) -> None:
    """Between the look and the PUT: what is there stays, and what is told is what is there."""
    table.temp(2)
    table.claim(2)
    held = aws_proxy.delay(f"PUT .*{file_of(2)}", HELD_SECONDS, times=1)
    found: list[LockRepair] = []
    slow = aws.storage(endpoint=aws_proxy.endpoint)
    thread = threading.Thread(target=lambda: found.append(repair(slow, young_seconds=0)))
    thread.start()
    wait_for(lambda: held.hits, "the PUT")
    assert file_of(2) not in table.files()
    table.copy(2, content)
    held.go.set()
    thread.join()
    assert done(found[0]) == [(2, state, "marked")]
    assert table.files()[file_of(2)] == content, "a commit was overwritten"
    assert table.is_complete(2)


def test_the_writer_completes_its_entry_meanwhile(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy
) -> None:
    table.temp(2)
    table.claim(2)
    table.copy(2)
    held = aws_proxy.delay("PutItem", HELD_SECONDS)
    found: list[LockRepair] = []
    slow = aws.storage(endpoint=aws_proxy.endpoint)
    thread = threading.Thread(target=lambda: found.append(repair(slow, young_seconds=0)))
    thread.start()
    wait_for(lambda: held.hits, "the mark")
    table.complete(2, expires=4_000_000_000)
    held.go.set()
    thread.join()
    assert done(found[0]) == [(2, "to_mark", "done_by_another")]
    entry = table.entry(2)
    assert entry is not None
    assert entry["expireTime"] == "4000000000"


def test_an_entry_that_was_made_anew_is_not_dropped(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy
) -> None:
    """Somebody dropped the lost one, and a writer claimed the version again, before our answer was confirmed."""
    table.claim(2)
    held = aws_proxy.delay("DeleteItem", HELD_SECONDS)
    found: list[LockRepair] = []
    slow = aws.storage(endpoint=aws_proxy.endpoint)
    thread = threading.Thread(target=lambda: found.append(repair(slow, lost="drop")))
    thread.start()
    wait_for(lambda: held.hits, "the deletion")
    table.temp(2)
    table.claim(2)
    held.go.set()
    thread.join()
    assert done(found[0]) == [(2, "lost", "done_by_another")]
    entry = table.entry(2)
    assert entry is not None
    assert entry["tempPath"] == table.temps[2]


def test_the_answer_to_the_copy_is_lost(aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy) -> None:
    table.temp(2)
    table.claim(2)
    aws_proxy.drop_answer("^PUT ", times=1)
    (found,) = repair(aws.storage(endpoint=aws_proxy.endpoint), young_seconds=0).entries
    assert (found.state, found.outcome, found.advice) == ("to_mark", "marked", None)
    assert table.files()[file_of(2)] == b"commit 2\n"
    assert table.is_complete(2)


def test_a_conflict_of_two_writes_is_tried_again(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy
) -> None:
    table.temp(2)
    table.claim(2)
    aws_proxy.refuse("^PUT ", code="ConditionalRequestConflict", status=409, times=1)
    assert done(repair(aws.storage(endpoint=aws_proxy.endpoint), young_seconds=0)) == [(2, "to_copy", "copied")]
    assert file_of(2) in table.files()


def test_a_busy_store_changes_nothing_and_is_temporary(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy
) -> None:
    table.temp(2)
    table.claim(2)
    aws_proxy.refuse("^PUT ", code="SlowDown", status=503)
    with pytest.raises(SourceUnavailable):
        repair(aws.storage(endpoint=aws_proxy.endpoint), young_seconds=0)
    assert not table.is_complete(2)
    aws_proxy.clear()
    assert repair(aws.storage(endpoint=aws_proxy.endpoint), young_seconds=0).whole
    assert table.is_complete(2)


def test_a_right_that_is_missing_stops_no_other_table(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy
) -> None:
    other = Commits(aws, "a").commit(0)
    for one, version in ((table, 2), (other, 1)):
        one.temp(version)
        one.claim(version)
    aws_proxy.refuse("^PUT .*/a/_delta_log", code="AccessDenied", status=403)
    found = repair(aws.storage(endpoint=aws_proxy.endpoint), young_seconds=0)
    assert [(one.version, one.outcome) for one in found.entries] == [(1, "left"), (2, "copied")]
    assert not found.whole
    assert (table.is_complete(2), other.is_complete(1)) == (True, False)


# ── forget ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_entries_of_a_dropped_table_are_forgotten(aws: Aws, storage: Storage, table: Commits) -> None:
    other = Commits(aws, "t2").commit(0)
    Commits(aws, scheme="s3").commit(1)
    table.claim(2)
    table.remove_log()
    assert {state for _, state in states(storage)} == {"dropped"}
    found = repair(storage, young_seconds=0, lost="drop")
    assert {one.outcome for one in found.entries} == {"left"}
    assert "storage lock forget" in str(found.entries[0].advice)
    forgotten = forget(storage, table.path)
    assert (forgotten.table, forgotten.removed, forgotten.kept) == (table.path, 4, 0)
    assert [one.table for one in read_entries(storage).tables] == [other.path]
    assert forget(storage, table.path).removed == 0


def test_temporary_files_that_a_deletion_left_do_not_bring_a_table_back(storage: Storage, table: Commits) -> None:
    table.temp(2)
    table.claim(2)
    table.remove(file_of(0), file_of(1))
    assert {state for _, state in states(storage)} == {"dropped"}
    repair(storage, young_seconds=0)
    assert table.commits() == {}
    assert forget(storage, table.path).removed == 3


def test_a_table_that_is_there_is_not_forgotten(storage: Storage, table: Commits) -> None:
    with pytest.raises(TargetNotReady, match="has commits") as refused:
        forget(storage, table.path)
    assert "delete the table first" in str(refused.value.hint)
    assert table.is_complete(1)
    assert forget(storage, table.path, commits="ignore").removed == 2
    assert table.entry(1) is None


def test_a_table_that_is_being_made_is_not_forgotten(aws: Aws, storage: Storage) -> None:
    table = Commits(aws, "new")
    table.temp(0)
    table.claim(0)
    with pytest.raises(TargetNotReady, match="is being created"):
        forget(storage, table.path)
    assert table.entry(0) is not None


def test_a_table_that_begins_meanwhile_keeps_its_entry(
    aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy
) -> None:
    table.remove_log()
    held = aws_proxy.delay("Query|Scan", HELD_SECONDS, times=1)
    slow = aws.storage(endpoint=aws_proxy.endpoint)
    refused: list[BaseException] = []

    def work() -> None:
        try:
            forget(slow, table.path)
        except TargetNotReady as error:
            refused.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: held.hits, "the look at the entries")
    table.temp(0)
    table.claim(0)
    held.go.set()
    thread.join()
    assert len(refused) == 1
    assert table.entry(0) is not None


def test_what_is_written_meanwhile_is_kept(aws: Aws, storage: Storage, table: Commits, aws_proxy: AwsProxy) -> None:
    table.remove_log()
    held = aws_proxy.delay("DeleteItem", HELD_SECONDS, times=1)
    slow = aws.storage(endpoint=aws_proxy.endpoint)
    kept: list[int] = []
    thread = threading.Thread(target=lambda: kept.append(forget(slow, table.path).kept))
    thread.start()
    wait_for(lambda: held.hits, "the deletion")
    table.temp(0)
    table.claim(0)
    held.go.set()
    thread.join()
    assert kept == [1]
    entry = table.entry(0)
    assert entry is not None
    assert entry["complete"] == "false"
