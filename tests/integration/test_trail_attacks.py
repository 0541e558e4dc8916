"""Whoever may write to the storage edits a trail: each edit is found, as what it is and where it is; upkeep is not.

Edits that do not touch each other are made in one trail, and the list of findings is exact: none is missing, none is about
another place. Kinds of findings that could hide behind another one are besides looked for alone.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from audit.proof import leaf_hash
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TABLES, TrailTables
from audit.verification import CHECKPOINTS, MOST_FINDINGS, Finding, FoundCheckpoint, verify_trail
from audit.verification.payload_records import read_reencrypted_hashes
from cdf.errors import TableReplaced, VerificationError
from cdf.testing import SampleTable, insert
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table
from tests.integration.intruder import forge_statistics, rewrite
from tests.integration.trail_case import (
    KEY,
    Trail,
    event_of,
    events_of,
    put,
    run,
    sealed,
    where,
    with_leaves,
)

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = 6
"""Events of each version but the next two."""
EMPTY, SINGLE = 13, 14
WITH_NOTE, LAST = 15, 16
"""These two versions have a column more; its values are empty strings."""


@dataclasses.dataclass(frozen=True)
class Long:
    """A trail of many versions, for edits that do not touch each other."""

    trail: Trail
    yesterday: dict[str, int]
    """The commit of each table after which the last two versions were not there yet."""


@pytest.fixture(scope="module")
def long(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Long:
    path = tmp_path_factory.mktemp("long") / "trail"
    schema = StructType().add("id", "long").add("name", "string").add("amount", "double").add("at", "timestamp")
    table = SampleTable(spark, schema, ("id",))
    wider = table.with_schema(StructType([*schema.fields]).add("note", "string"))

    def rows(version: int, **more: Any) -> list[Any]:
        count = {EMPTY: 0, SINGLE: 1}.get(version, ROWS)
        at = dt.datetime(2026, 1, 1, microsecond=1)
        named = [{"id": 100 * version + one, "name": f"n{one}", "amount": one / 4, "at": at} for one in range(count)]
        return [insert({**row, **more}) for row in named]

    sink = DeltaAuditSink(str(path), spark=spark, signer=KEY)
    sink.open(table.source())
    sink.apply(table.window(1, *[rows(version) for version in range(1, WITH_NOTE)]))
    tables = TrailTables(spark, str(path))
    yesterday = {name: tables.log(name).latest() for name in TABLES}
    sink.apply(wider.window(WITH_NOTE, rows(WITH_NOTE, note=""), rows(LAST, note="")))
    sink.close()
    return Long(Trail(spark, path, sealed(spark, path)), yesterday)


@pytest.fixture
def trail(long: Long, tmp_path: Path) -> Trail:
    path = tmp_path / "copy"
    shutil.copytree(long.trail.path, path)
    return dataclasses.replace(long.trail, path=path)


Rows = list[dict[str, Any]]


def edited(edit: Callable[[Rows], Rows]) -> Callable[[pa.Table], pa.Table]:
    """An edit of a file's rows as Python has them."""

    def rewritten(rows: pa.Table) -> pa.Table:
        before = rows.to_pylist()
        after = edit(copy.deepcopy(before))
        return rows if after == before else pa.Table.from_pylist(after, schema=rows.schema)

    return rewritten


def same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Each as often, in any order."""
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    return True


class TestUpkeepIsNoFault:
    def test_as_it_was_written(self, whole_trail: Trail) -> None:
        found, _ = verify_trail(whole_trail.tables, [FoundCheckpoint(whole_trail.checkpoint, "a safe", True)])
        assert found.findings == ()
        assert (found.first_version, found.last_version, found.sealed_version) == (0, 6, 6)
        assert (found.records, found.events, found.values) == (7, 6 + 4 + 1 + 1, 12)

    def test_optimize_zorder_purge_vacuum_and_checkpoints(self, trail: Trail) -> None:
        for name in (EVENTS, PAYLOAD, LEDGER):
            trail.sql(name, "optimize {t}")
            DeltaTable.forPath(trail.spark, str(trail.table(name))).optimize().executeZOrderBy("version")
            trail.sql(name, "reorg table {t} apply (purge)")
            trail.sql(name, "vacuum {t}")
            DeltaTable.forPath(trail.spark, str(trail.table(name))).upgradeTableProtocol(1, 2)
        assert trail.findings() == []


def test_values(trail: Trail) -> None:
    """Of the payload, under events that are what they were."""
    place = {bytes(event["id"]): at for at, event in events_of(trail).items()}
    swapped = {id: other for id, at in place.items() for other, its in place.items() if {at, its} == {(4, 0), (4, 1)}}

    def edit(rows: Rows) -> Rows:
        out: Rows = []
        for row in rows:
            match place[row["id"]]:
                case (1, 3):  # a microsecond
                    row["row"]["at"] += dt.timedelta(microseconds=1)
                case (15, 0):  # NULL in the place of an empty string
                    row["row"]["note"] = None
                case (2, 1):  # removed without a record
                    continue
                case (3, 0):  # a second one, which belongs to no event
                    out.append({**row, "id": b"0" * 16})
                case (4, 0) | (4, 1):  # two events exchange their values
                    row["id"] = swapped[row["id"]]
                case (5, 2):  # a copy of the event beside the values
                    row["change_type"] = "delete"
                case (6, 0):  # a value where the commit had no column
                    row["row"]["note"] = "planted"
                case (7, 4):  # twice
                    out.append(dict(row))
                case (8, 5):  # in another commit
                    row["version"] = 9
                case (10, 1):  # the hash beside the values
                    row["row_hash"] = b"1" * 32
                case (11, 2):  # the salt, without which the hash is another one
                    row["salt"] = b"1" * 16
                case (12, 0):  # a second one, of no commit
                    out.append({**row, "id": b"2" * 16, "version": None})
            out.append(row)
        return out

    def widened(rows: pa.Table) -> pa.Table:
        """The files from before ``note`` get its place, as files have that Spark has written since."""
        kind = rows.schema.field("row").type
        if "note" in kind.names:
            return edited(edit)(rows)
        at = rows.schema.get_field_index("row")
        wider = rows.schema.set(at, rows.schema.field(at).with_type(pa.struct([*kind, pa.field("note", pa.string())])))
        return pa.Table.from_pylist(edit(rows.to_pylist()), schema=wider)

    assert rewrite(trail.table(PAYLOAD), widened) == 2
    assert same(
        trail.findings(),
        [
            ("altered", PAYLOAD, 1, 3),
            ("altered", PAYLOAD, 15, 0),
            ("missing", PAYLOAD, 2, 1),
            ("added", PAYLOAD, 3, None),
            ("altered", PAYLOAD, 4, 0),
            ("altered", PAYLOAD, 4, 1),
            ("altered", PAYLOAD, 5, 2),
            ("altered", PAYLOAD, 6, 0),
            ("doubled", PAYLOAD, 7, 4),
            ("moved", EVENTS, 8, 5),
            ("altered", PAYLOAD, 10, 1),
            ("altered", PAYLOAD, 11, 2),
            ("added", PAYLOAD, None, None),
        ],
    )


def test_events(trail: Trail) -> None:
    """Of the events, above values that are what they were."""

    def edit(rows: Rows) -> Rows:
        out: Rows = []
        for row in rows:
            match row["version"], row["index"]:
                case (1, 2) | (2, 5) | (3, _):  # one is removed, the last of a commit, all of a commit
                    continue
                case (4, 2):  # one is there twice
                    out.append(dict(row))
                case (5, 2):  # one is added
                    out.append({**row, "index": ROWS, "id": b"1" * 16})
                case (6, 0):  # an insert is called a delete
                    row["change_type"] = "delete"
                case (7, 0) | (7, 1):  # two leaves are swapped
                    row["index"] = 1 - row["index"]
                case (8, 5):  # one is moved to another commit
                    row["version"] = SINGLE
                case (9, 0) | (10, 0):  # two exchange their commits
                    row["version"] = 19 - row["version"]
                case (11, 4):  # a leaf alone
                    row["leaf"] = b"0" * 32
                case (12, 3):  # of an operation that never was
                    out.append({**row, "version": EMPTY, "index": 0, "id": b"4" * 16})
                case (15, 1):  # one without a place
                    out.append({**row, "index": -1, "id": b"3" * 16})
                case (16, 0):  # an event and its leaf, which is computed again below: the commit's root does not fit
                    row["change_type"] = "delete"
            out.append(row)
        return out

    assert rewrite(trail.table(EVENTS), lambda rows: with_leaves(edited(edit)(rows), where(LAST, 0))) == 2
    assert same(
        trail.findings(),
        [
            ("missing", EVENTS, 1, 2),
            ("missing", EVENTS, 2, 5),
            ("missing", EVENTS, 3, 0),
            ("doubled", EVENTS, 4, 2),
            ("added", EVENTS, 5, ROWS),
            ("altered", EVENTS, 5, ROWS),
            ("altered", EVENTS, 6, 0),
            ("altered", EVENTS, 7, 0),
            ("altered", EVENTS, 7, 1),
            ("moved", EVENTS, SINGLE, 5),
            ("moved", EVENTS, 9, 0),
            ("moved", EVENTS, 10, 0),
            ("altered", EVENTS, 11, 4),
            ("added", EVENTS, EMPTY, 0),
            ("added", EVENTS, 15, None),
            ("missing", PAYLOAD, 15, -1),
            ("altered", EVENTS, LAST, 0),
        ],
    )


def test_the_ledger(trail: Trail) -> None:
    """What each kind of fault is called is in ``tests/unit/test_audit_verify.py``."""

    def edit(rows: Rows) -> Rows:
        out: Rows = []
        for row in rows:
            match row["version"]:
                case 3:
                    assert '"operation":"MERGE"' in row["record"]
                    row["record"] = row["record"].replace('"operation":"MERGE"', '"operation":"WRITE"')
                case 5:  # copies beside the record
                    row["events"] = 2
                case 7:
                    row["committed_at"] += dt.timedelta(seconds=1)
                case 8:  # records without a place
                    out.append({**row, "sequence": None})
                case 9:
                    out.append({**row, "sequence": -1})
                case 13:  # removed
                    continue
                case 16:  # no record at all
                    row["record"] = "[" * 5000
            out.append(row)
        return out

    assert rewrite(trail.table(LEDGER), edited(edit)) == 2
    assert same(
        trail.findings(),
        [
            ("altered", LEDGER, 3, None),
            ("altered", LEDGER, 5, None),
            ("altered", LEDGER, 7, None),
            ("added", LEDGER, 8, None),
            ("added", LEDGER, 9, None),
            ("missing", LEDGER, 14, None),
            ("altered", LEDGER, 16, None),
        ],
    )


class TestAlone:
    """Each kind of finding without another one that it could hide behind. Others are alone elsewhere: ``altered`` and
    ``cut_off`` below; ``missing``, ``returned``, ``replaced`` and ``not_signed`` in ``test_trail_written_anew``."""

    def test_values_that_belong_to_no_event(self, trail: Trail) -> None:
        def added(rows: pa.Table) -> pa.Table:
            mask = where(SINGLE)(rows)
            return pa.concat_tables([rows, put(rows, mask, id=lambda _: b"0" * 16).filter(mask)])

        assert rewrite(trail.table(PAYLOAD), added) == 1
        assert trail.findings() == [("added", PAYLOAD, SINGLE, None)]

    def test_an_event_twice(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: pa.concat_tables([rows, rows.filter(where(1, 2)(rows))]))
        assert trail.findings() == [("doubled", EVENTS, 1, 2)]

    def test_an_event_in_another_commit(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: put(rows, where(1, 5)(rows), version=lambda _: SINGLE))
        assert trail.findings() == [("moved", EVENTS, SINGLE, 5)]


def beyond(said: dict[str, Any]) -> dict[str, Any]:
    """Nothing in the file is of a version that anybody asks for, nor is there any row."""
    bounds = {name: {**said[name], "version": 10**6} for name in ("minValues", "maxValues")}
    return {**said, **bounds, "numRecords": 0}


def beyond_the_key(said: dict[str, Any]) -> dict[str, Any]:
    """Bounds that hide a record from its history."""
    return {**said, **{name: {**said[name], "row": {"id": 10**6}} for name in ("minValues", "maxValues")}}


def without_a_key(said: dict[str, Any]) -> dict[str, Any]:
    """NULLs that hide a record from its history."""
    return {**said, "nullCount": {**said["nullCount"], "row": {"id": said["numRecords"]}}}


class TestStatistics:
    def test_those_that_hide_rows_from_whoever_asks(self, trail: Trail) -> None:
        for name in TABLES:
            rows = trail.spark.read.format("delta").load(str(trail.table(name)))
            assert rows.where("version = 1").count()
            assert forge_statistics(trail.table(name), beyond)
            rows = trail.spark.read.format("delta").load(str(trail.table(name)))
            assert (rows.where("version = 1").count(), rows.count()) == (0, 0)  # else the attack is none
        assert same(trail.findings(), [("altered", name, None, None) for name in TABLES])

    def test_of_the_key_alone_and_an_event_that_only_some_readers_see(self, trail: Trail) -> None:
        """The event is in a file whose statistics keep everybody away who asks for versions."""
        forged: Iterator[Callable[[dict[str, Any]], dict[str, Any]]] = iter([beyond_the_key, without_a_key])
        assert forge_statistics(trail.table(PAYLOAD), lambda said: next(forged)(said)) == 2
        rewrite(trail.table(EVENTS), lambda rows: pa.concat_tables([rows, rows.filter(where(1, 2)(rows))]))
        log = max((trail.table(EVENTS) / "_delta_log").glob("*.json"))
        text = log.read_text()
        said = json.dumps(json.dumps({"numRecords": 0, "minValues": {"version": 99}, "maxValues": {"version": 99}}))
        log.write_text(text.replace('"dataChange": false}}', '"dataChange": false, "stats": ' + said + "}}"))
        found, _ = verify_trail(trail.tables, [FoundCheckpoint(trail.checkpoint, "a safe", True)])
        assert same(
            [(one.kind, one.table, one.version, one.first) for one in found.findings],
            [("doubled", EVENTS, 1, 2), ("altered", EVENTS, None, None), ("altered", PAYLOAD, None, None)],
        )
        (of_the_key,) = [one.text for one in found.findings if one.table == PAYLOAD]
        assert "the statistics of 2 of its files" in of_the_key


class TestTheLedger:
    def test_records_that_no_runner_writes_hide_nothing(self, trail: Trail) -> None:
        """Ranges without end, of the wrong form, and of what never was; what else is altered is reported all the same."""
        forged: list[tuple[str, dict[str, Any]]] = [
            ("sealing", {"sealed": {"2": [[0, 10**15]]}, "values": 10**15 + 1}),
            ("sealing", {"sealed": {"2": [[0]]}, "values": 1}),
            ("removal", {"removed": {"2": [[2**70, 2**71]]}, "values": 1}),
            ("removal", {"removed": {"x": [[0]]}, "values": 1}),
            ("removal", {"removed": {"1": [[3, 10**15]]}, "values": 10**15 - 2}),
            ("shredding", {"keys": ["xy", 1], "values": 1}),
        ]

        def edit(rows: pa.Table) -> pa.Table:
            last = [row for row in rows.to_pylist() if row["version"] == LAST]
            made = []
            for at, (kind, said) in enumerate(forged if last else (), LAST):
                at_now = last[0]["committed_at"].isoformat(timespec="microseconds").replace("+00:00", "") + "Z"
                common = {"hashes_root": "00" * 32, "made_in": "00" * 16} if kind == "sealing" else {}
                record = {**common, **said, "kind": kind, "previous": "00" * 32, "sequence": at, "table_id": "t"}
                text = json.dumps({**record, "removed_at": at_now}, sort_keys=True, separators=(",", ":"))
                copies = {"sequence": at, "kind": kind, "version": None, "events": 0, "record": text}
                made.append({**last[0], **copies, "leaf": leaf_hash(text.encode()), "chunk_roots": b""})
            return pa.concat_tables([rows, pa.Table.from_pylist(made, schema=rows.schema)])

        rewrite(trail.table(LEDGER), edit)
        event = event_of(trail, 1, 3)
        changed = dt.timedelta(microseconds=1)
        rewrite(
            trail.table(PAYLOAD),
            lambda rows: put(
                rows, pc.equal(rows["id"], bytes(event["id"])), row=lambda row: {**row, "at": row["at"] + changed}
            ),
        )
        found = trail.findings()
        assert ("altered", PAYLOAD, 1, 3) in found
        assert [one for one in found if one[1] != LEDGER] == [("altered", PAYLOAD, 1, 3)]
        assert len([one for one in found if one[:2] == ("altered", LEDGER)]) >= len(forged)
        later = read_reencrypted_hashes(trail.tables.read(LEDGER))
        assert later is not None
        assert later.count() == 0

    def test_the_last_commits_are_cut_off(self, trail: Trail) -> None:
        for name in (LEDGER, EVENTS, PAYLOAD):
            rewrite(trail.table(name), lambda rows: rows.filter(pc.less(rows["version"], 5)))
        assert trail.findings() == [("cut_off", LEDGER, None, None)]

    def test_a_restore_takes_the_trail_back(self, long: Long, trail: Trail) -> None:
        """Append-only does not stop it. A copy of yesterday in the place of the trail is the same."""
        for name, version in long.yesterday.items():
            trail.sql(name, f"restore table {{t}} to version as of {version}")
        # The older checkpoint fits: only one from later tells
        yesterday = FoundCheckpoint(sealed(trail.spark, trail.path), "a safe", True)
        found, _ = verify_trail(trail.tables, [yesterday])
        assert (found.findings, found.last_version, found.sealed_version) == ((), SINGLE, SINGLE)
        assert trail.findings() == [("cut_off", LEDGER, None, None)]

    def test_another_trail_in_its_place(self, whole_trail: Trail, long: Long) -> None:
        seen = FoundCheckpoint(long.trail.checkpoint, "a safe", True)
        found, _ = verify_trail(whole_trail.tables, [seen], origin="deltarelay.audit/another")
        assert [(one.kind, one.table, one.version, one.text) for one in found.findings] == [
            ("replaced", LEDGER, None, "the trail is not the requested one: this one was recreated"),
            ("replaced", LEDGER, None, "the checkpoint from a safe belongs to another trail: this one was recreated"),
        ]

    def test_junk_hides_nothing(self, long: Long) -> None:
        unsigned = FoundCheckpoint(long.trail.checkpoint, "the trail", False)
        junk = [FoundCheckpoint(None, "an anchor", False)] * (MOST_FINDINGS + 5)
        other = FoundCheckpoint(dataclasses.replace(long.trail.checkpoint, root=bytes(32)), "a safe", True)
        found, _ = verify_trail(long.trail.tables, [unsigned, *junk, other])
        assert [(one.kind, one.table, one.version) for one in found.findings] == [
            *[("not_signed", CHECKPOINTS, None)] * MOST_FINDINGS,
            ("replaced", LEDGER, LAST),
        ]
        assert found.findings[0].text == "a checkpoint from the trail is not signed by a trusted key"
        assert found.more_findings


def test_a_damaged_file_is_no_finding_but_an_error(trail: Trail) -> None:
    """Each table is read before those that were damaged before it."""
    for name in (PAYLOAD, EVENTS, LEDGER):
        for file in trail.table(name).glob("*.parquet"):
            file.write_bytes(file.read_bytes()[:-20] + b"\0" * 20)
            trail.table(name).joinpath(f".{file.name}.crc").unlink(missing_ok=True)
        steps: list[str] = []
        with pytest.raises(VerificationError, match="cannot be read completely"):
            trail.findings(progress=steps.append)
        assert steps[-1] == {PAYLOAD: "values", EVENTS: "events", LEDGER: "ledger"}[name]


def test_a_missing_file_is_named(trail: Trail) -> None:
    for file in trail.table(EVENTS).glob("*.parquet"):
        file.unlink()
    with pytest.raises(VerificationError, match=r"the file events/part-[^/]*\.parquet is damaged, missing"):
        trail.findings()


def test_findings_say_nothing_of_the_rows(trail: Trail) -> None:
    rewrite(
        trail.table(PAYLOAD), lambda rows: put(rows, where(1)(rows), row=lambda row: {**row, "name": "canary-4711"})
    )
    found, _ = verify_trail(trail.tables, [])
    assert [(finding.kind, finding.table) for finding in found.findings] == [("altered", PAYLOAD)] * ROWS
    assert "canary" not in repr(found)
    assert all(isinstance(finding, Finding) for finding in found.findings)


def test_a_source_that_was_dropped_and_made_again(spark: SparkSession, tmp_path: Path) -> None:
    """It gets no more into the trail of the one before, which stays what it was."""
    source, path = Table(spark, str(tmp_path / "source"), "id long, v string"), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a')")
    run(spark, source, path)
    checkpoint = sealed(spark, path)
    shutil.rmtree(source.path)
    again = Table(spark, source.path, "id long, v string")
    again.sql("insert into {t} values (1, 'b')", "insert into {t} values (2, 'b')")
    with pytest.raises(TableReplaced):
        run(spark, again, path)
    found, _ = verify_trail(Trail(spark, path, checkpoint).tables, [FoundCheckpoint(checkpoint, "a safe", True)])
    assert (found.findings, found.last_version, found.sealed_version) == ((), 1, 1)
