"""Whoever may write to the storage edits a trail: each edit is found, as what it is and where it is; upkeep is not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from audit.anchors import Missed
from audit.errors import AnchorUnavailable
from audit.proof import leaf_hash
from audit.tables import EVENTS, LEDGER, PAYLOAD
from audit.verify import CHECKPOINTS, MOST_FINDINGS, Finding, Seen, verify_trail
from audit.verify.values import resealed_by
from cdf.errors import TableReplaced, VerificationError
from tests.integration.delta_table import Table
from tests.integration.intruder import forge_statistics, rewrite
from tests.integration.trail_case import Trail, as_insert, event_of, put, run, sealed, where, write

pytestmark = pytest.mark.usefixtures("interpreted")


class TestUpkeepIsNoFault:
    def test_as_it_was_written(self, whole_trail: Trail) -> None:
        found, _ = verify_trail(whole_trail.tables, [Seen(whole_trail.checkpoint, "a safe", True)])
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


class TestValues:
    def test_a_microsecond_is_changed(self, trail: Trail) -> None:
        event = event_of(trail, 1, 3)

        def edit(rows: pa.Table) -> pa.Table:
            mask = pc.equal(rows["id"], bytes(event["id"]))
            return put(rows, mask, row=lambda row: {**row, "at": row["at"] + dt.timedelta(microseconds=1)})

        assert rewrite(trail.table(PAYLOAD), edit) == 1
        assert trail.findings() == [("altered", PAYLOAD, 1, 3)]

    def test_null_takes_the_place_of_an_empty_string_and_the_other_way_round(self, trail: Trail) -> None:
        event = event_of(trail, 6, 0)

        def edit(rows: pa.Table) -> pa.Table:
            return put(rows, pc.equal(rows["id"], bytes(event["id"])), row=lambda row: {**row, "note": None})

        rewrite(trail.table(PAYLOAD), edit)
        assert trail.findings() == [("altered", PAYLOAD, 6, 0)]

    def test_values_are_removed_without_a_record(self, trail: Trail) -> None:
        event = event_of(trail, 2, 1)
        trail.sql(PAYLOAD, f"delete from {{t}} where id = x'{bytes(event['id']).hex()}'")
        assert trail.findings() == [("missing", PAYLOAD, 2, 1)]

    def test_values_that_belong_to_no_event(self, trail: Trail) -> None:
        rewrite(
            trail.table(PAYLOAD),
            lambda rows: pa.concat_tables(
                [rows, put(rows, where(3)(rows), id=lambda _: b"0" * 16).filter(where(3)(rows))]
            ),
        )
        assert trail.findings() == [("added", PAYLOAD, 3, None)]

    def test_two_events_exchange_their_values(self, trail: Trail) -> None:
        one, other = bytes(event_of(trail, 1, 0)["id"]), bytes(event_of(trail, 1, 1)["id"])
        change = {one: other, other: one}
        rewrite(
            trail.table(PAYLOAD),
            lambda rows: put(rows, pc.is_in(rows["id"], pa.array(list(change))), id=lambda id: change[id]),
        )
        assert trail.findings() == [("altered", PAYLOAD, 1, 0), ("altered", PAYLOAD, 1, 1)]

    def test_a_copy_of_the_event_beside_the_values(self, trail: Trail) -> None:
        rewrite(trail.table(PAYLOAD), lambda rows: put(rows, where(3)(rows), change_type=lambda _: "insert"))
        assert trail.findings() == [("altered", PAYLOAD, 3, 0)]

    def test_a_value_where_the_commit_had_no_column(self, trail: Trail) -> None:
        """``note`` came with version 5; an older row has none."""

        def edit(rows: pa.Table) -> pa.Table:
            kind, mask = rows.schema.field("row").type, where(3)(rows)
            if "note" in kind.names or not pc.any(mask).as_py():
                return rows
            values = [
                {**row, "note": "planted" if there else None}
                for row, there in zip(rows["row"].to_pylist(), mask.to_pylist(), strict=True)
            ]
            wider = pa.array(values, pa.struct([*kind, pa.field("note", pa.string())]))
            return rows.set_column(rows.schema.get_field_index("row"), "row", wider)

        def written_since(rows: pa.Table) -> pa.Table:
            return put(rows, where(3)(rows), row=lambda row: {**row, "note": "planted"})

        assert rewrite(trail.table(PAYLOAD), edit) + rewrite(trail.table(PAYLOAD), written_since) >= 1
        assert trail.findings() == [("altered", PAYLOAD, 3, 0)]

    def test_a_row_without_a_version(self, trail: Trail) -> None:
        def edit(rows: pa.Table) -> pa.Table:
            new = rows.filter(where(3)(rows))
            return pa.concat_tables(
                [rows, put(new, pc.is_valid(new["id"]), version=lambda _: None, id=lambda _: b"2" * 16)]
            )

        rewrite(trail.table(PAYLOAD), edit)
        assert trail.findings() == [("added", PAYLOAD, None, None)]


def beyond(said: dict[str, Any]) -> dict[str, Any]:
    """Nothing in the file is of a version that anybody asks for, nor is there any row."""
    bounds = {name: {**said[name], "version": 10**6} for name in ("minValues", "maxValues")}
    return {**said, **bounds, "numRecords": 0}


class TestStatistics:
    @pytest.mark.parametrize("name", [EVENTS, PAYLOAD, LEDGER])
    def test_those_that_hide_rows_from_whoever_asks(self, trail: Trail, name: str) -> None:
        before = trail.spark.read.format("delta").load(str(trail.table(name))).where("version = 1").count()
        assert before
        assert forge_statistics(trail.table(name), beyond)
        rows = trail.spark.read.format("delta").load(str(trail.table(name)))
        assert (rows.where("version = 1").count(), rows.count()) == (0, 0)  # else the attack is none
        assert trail.findings() == [("altered", name, None, None)]

    def test_bounds_of_a_key_that_hide_a_record_from_its_history(self, trail: Trail) -> None:
        def forged(said: dict[str, Any]) -> dict[str, Any]:
            return {**said, **{name: {**said[name], "row": {"id": 10**6}} for name in ("minValues", "maxValues")}}

        assert forge_statistics(trail.table(PAYLOAD), forged)
        assert trail.findings() == [("altered", PAYLOAD, None, None)]

    def test_nulls_that_hide_a_record_from_its_history(self, trail: Trail) -> None:
        def forged(said: dict[str, Any]) -> dict[str, Any]:
            return {**said, "nullCount": {**said["nullCount"], "row": {"id": said["numRecords"]}}}

        assert forge_statistics(trail.table(PAYLOAD), forged)
        assert trail.findings() == [("altered", PAYLOAD, None, None)]

    def test_an_event_that_only_some_readers_see(self, trail: Trail) -> None:
        """Added in a file whose statistics keep everybody away who asks for versions."""
        added = {"at": -1}

        def edit(rows: pa.Table) -> pa.Table:
            added["at"] = rows.num_rows
            return pa.concat_tables([rows, rows.filter(where(1, 2)(rows))])

        rewrite(trail.table(EVENTS), edit)
        log = max((trail.table(EVENTS) / "_delta_log").glob("*.json"))
        text = log.read_text()
        said = json.dumps(json.dumps({"numRecords": 0, "minValues": {"version": 9}, "maxValues": {"version": 9}}))
        log.write_text(text.replace('"dataChange": false}}', '"dataChange": false, "stats": ' + said + "}}"))
        found = trail.findings()
        assert ("doubled", EVENTS, 1, 2) in found
        assert {one[:2] for one in found} == {("doubled", EVENTS), ("altered", EVENTS)}


class TestEvents:
    def test_one_without_a_place(self, trail: Trail) -> None:
        def edit(rows: pa.Table) -> pa.Table:
            new = rows.filter(where(3)(rows))
            return pa.concat_tables(
                [rows, put(new, pc.is_valid(new["id"]), index=lambda _: -1, id=lambda _: b"3" * 16)]
            )

        rewrite(trail.table(EVENTS), edit)
        assert ("added", EVENTS, 3, None) in trail.findings()

    def test_a_leaf_alone(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: put(rows, where(3)(rows), leaf=lambda _: b"0" * 32))
        assert trail.findings() == [("altered", EVENTS, 3, 0)]

    def test_one_is_removed(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: rows.filter(pc.invert(where(1, 2)(rows))))
        assert trail.findings() == [("missing", EVENTS, 1, 2)]

    def test_the_last_of_a_commit_is_removed(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: rows.filter(pc.invert(where(1, 5)(rows))))
        assert trail.findings() == [("missing", EVENTS, 1, 5)]

    def test_all_of_a_commit_are_removed(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: rows.filter(pc.invert(where(3)(rows))))
        assert trail.findings() == [("missing", EVENTS, 3, 0)]

    def test_one_is_there_twice(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: pa.concat_tables([rows, rows.filter(where(1, 2)(rows))]))
        assert trail.findings() == [("doubled", EVENTS, 1, 2)]

    def test_one_is_added(self, trail: Trail) -> None:
        def edit(rows: pa.Table) -> pa.Table:
            new = rows.filter(where(1, 2)(rows))
            new = put(new, pc.is_valid(new["id"]), index=lambda _: 6, id=lambda _: b"1" * 16)
            return pa.concat_tables([rows, new])

        rewrite(trail.table(EVENTS), edit)
        kinds = trail.findings()
        assert ("added", EVENTS, 1, 6) in kinds
        assert all(place[2:] == (1, 6) for place in kinds)

    def test_an_operation_that_never_was(self, trail: Trail) -> None:
        def edit(rows: pa.Table) -> pa.Table:
            new = rows.filter(where(1, 2)(rows))
            return pa.concat_tables(
                [rows, put(new, pc.is_valid(new["id"]), version=lambda _: 4, id=lambda _: b"1" * 16)]
            )

        rewrite(trail.table(EVENTS), edit)
        assert ("added", EVENTS, 4, None) in [
            (kind, table, version, None) for kind, table, version, _ in trail.findings()
        ]

    def test_a_delete_is_called_an_insert(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: put(rows, where(3)(rows), change_type=lambda _: "insert"))
        assert trail.findings() == [("altered", EVENTS, 3, 0)]

    def test_two_leaves_are_swapped(self, trail: Trail) -> None:
        other = {0: 1, 1: 0}

        def edit(rows: pa.Table) -> pa.Table:
            mask = pc.and_(where(1)(rows), pc.less(rows["index"], 2))
            return put(rows, mask, index=lambda index: other[index])

        rewrite(trail.table(EVENTS), edit)
        assert trail.findings() == [("altered", EVENTS, 1, 0), ("altered", EVENTS, 1, 1)]

    def test_one_is_moved_to_another_commit(self, trail: Trail) -> None:
        rewrite(trail.table(EVENTS), lambda rows: put(rows, where(1, 5)(rows), version=lambda _: 3))
        assert trail.findings() == [("moved", EVENTS, 3, 5)]

    def test_two_exchange_their_commits(self, trail: Trail) -> None:
        """Each is named where it is now, although both have the same place in their commit."""
        change = {(1, 0): 2, (2, 0): 1}

        def edit(rows: pa.Table) -> pa.Table:
            there = zip(rows["version"].to_pylist(), rows["index"].to_pylist(), strict=True)
            new = pa.array([change.get(place, place[0]) for place in there], rows.schema.field("version").type)
            return rows.set_column(rows.schema.get_field_index("version"), "version", new)

        rewrite(trail.table(EVENTS), edit)
        assert trail.findings() == [("moved", EVENTS, 1, 0), ("moved", EVENTS, 2, 0)]

    def test_an_event_and_its_hash(self, trail: Trail) -> None:
        """The leaf is computed anew, as whoever knows the format can: the commit's root does not fit."""
        rewrite(trail.table(EVENTS), as_insert)
        assert trail.findings() == [("altered", EVENTS, 3, 0)]


class TestTheLedger:
    def test_a_record_is_altered(self, trail: Trail) -> None:
        rewrite(
            trail.table(LEDGER),
            lambda rows: put(
                rows, where(3)(rows), record=lambda text: text.replace('"operation":"DELETE"', '"operation":"MERGE"')
            ),
        )
        assert trail.findings() == [("altered", LEDGER, 3, None)]

    def test_a_copy_beside_the_record_is_altered(self, trail: Trail) -> None:
        rewrite(trail.table(LEDGER), lambda rows: put(rows, where(3)(rows), events=lambda _: 2))
        assert trail.findings() == [("altered", LEDGER, 3, None)]

    def test_the_time_beside_a_record(self, trail: Trail) -> None:
        later = dt.timedelta(seconds=1)
        rewrite(trail.table(LEDGER), lambda rows: put(rows, where(3)(rows), committed_at=lambda at: at + later))
        assert trail.findings() == [("altered", LEDGER, 3, None)]

    @pytest.mark.parametrize("place", [None, -1])
    def test_a_record_without_a_place(self, trail: Trail, place: int | None) -> None:
        def edit(rows: pa.Table) -> pa.Table:
            new = rows.filter(where(3)(rows))
            return pa.concat_tables([rows, put(new, pc.is_valid(new["record"]), sequence=lambda _: place)])

        rewrite(trail.table(LEDGER), edit)
        assert trail.findings() == [("added", LEDGER, 3, None)]

    @pytest.mark.parametrize("record", ["", "{}", "[1]", '{"sequence":3}', "[" * 5000])
    def test_a_record_that_is_none(self, trail: Trail, record: str) -> None:
        rewrite(trail.table(LEDGER), lambda rows: put(rows, where(6)(rows), record=lambda _: record))
        assert ("altered", LEDGER, 6, None) in trail.findings()

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
            last = [row for row in rows.to_pylist() if row["sequence"] == 6]
            made = []
            for at, (kind, said) in enumerate(forged if last else (), 7):
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
        later = resealed_by(trail.tables.read(LEDGER))
        assert later is not None
        assert later.count() == 0

    def test_a_record_is_removed(self, trail: Trail) -> None:
        rewrite(trail.table(LEDGER), lambda rows: rows.filter(pc.invert(where(4)(rows))))
        kinds = trail.findings()
        assert {(kind, table) for kind, table, _, _ in kinds} == {("missing", LEDGER)}

    def test_the_last_commits_are_cut_off(self, trail: Trail) -> None:
        for name in (LEDGER, EVENTS, PAYLOAD):
            rewrite(trail.table(name), lambda rows: rows.filter(pc.less(rows["version"], 5)))
        assert trail.findings() == [("cut_off", LEDGER, None, None)]

    def test_a_copy_of_yesterday_or_a_restore_takes_the_trail_back(self, spark: SparkSession, tmp_path: Path) -> None:
        """Append-only does not stop it."""
        source = Table(spark, str(tmp_path / "source"), "id long, v string")
        source.sql("insert into {t} values (1, 'a')")
        run(spark, source, tmp_path / "trail")
        trail = Trail(spark, tmp_path / "trail", sealed(spark, tmp_path / "trail"))
        before = {
            name: DeltaTable.forPath(spark, str(trail.table(name))).history(1).collect()[0][0]
            for name in (LEDGER, EVENTS, PAYLOAD)
        }
        yesterday = tmp_path / "yesterday"
        shutil.copytree(trail.path, yesterday)
        source.sql("insert into {t} values (2, 'b')")
        run(spark, source, trail.path)
        later = Seen(sealed(spark, trail.path), "a safe", True)
        assert dataclasses.replace(trail, path=yesterday).findings(later) == [("cut_off", LEDGER, None, None)]
        for name, version in before.items():
            trail.sql(name, f"restore table {{t}} to version as of {version}")
        assert trail.findings() == []  # the older checkpoint fits: only one from later tells
        assert trail.findings(later) == [("cut_off", LEDGER, None, None)]

    def test_all_of_it_made_anew(self, trail: Trail, tmp_path: Path) -> None:
        source = Table(trail.spark, str(tmp_path / "source"), "id long, name string, amount double, at timestamp")
        write(source)
        run(trail.spark, source, tmp_path / "anew")
        anew = dataclasses.replace(trail, path=tmp_path / "anew")
        assert anew.findings() == [("replaced", LEDGER, None, None)]

    def test_a_checkpoint_of_nobody(self, trail: Trail) -> None:
        kinds = trail.findings(Seen(trail.checkpoint, "the trail", False))
        assert kinds == [("not_signed", CHECKPOINTS, None, None)]

    def test_junk_hides_nothing(self, trail: Trail) -> None:
        junk = [Seen(None, "an anchor", False)] * (MOST_FINDINGS + 5)
        other = Seen(dataclasses.replace(trail.checkpoint, root=bytes(32)), "a safe", True)
        found = trail.findings(*junk, other)
        assert found == [("not_signed", CHECKPOINTS, None, None)] * MOST_FINDINGS + [("replaced", LEDGER, 6, None)]

    def test_of_another_trail_than_was_asked_for(self, trail: Trail) -> None:
        assert trail.findings(origin="deltarelay.audit/another") == [("replaced", LEDGER, None, None)]

    def test_nobody_outside_knows_it(self, trail: Trail) -> None:
        unknown, _ = verify_trail(trail.tables, [], anchored=True)
        assert [(one.kind, one.table) for one in unknown.findings] == [("not_signed", LEDGER)]
        gone = Missed("a safe", AnchorUnavailable("gone"))
        maybe, _ = verify_trail(trail.tables, [], anchored=True, unreachable=[gone])
        assert (maybe.findings, maybe.unreachable) == ((), (gone,))


@pytest.mark.parametrize("name", [EVENTS, PAYLOAD, LEDGER])
def test_a_damaged_file_is_no_finding_but_an_error(trail: Trail, name: str) -> None:
    for file in trail.table(name).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20] + b"\0" * 20)
        trail.table(name).joinpath(f".{file.name}.crc").unlink(missing_ok=True)
    with pytest.raises(VerificationError, match="cannot be read through"):
        trail.findings()


def test_a_missing_file_is_named(trail: Trail) -> None:
    for file in trail.table(EVENTS).glob("*.parquet"):
        file.unlink()
    with pytest.raises(VerificationError, match=r"the file events/part-[^/]*\.parquet is damaged or gone"):
        trail.findings()


def test_findings_say_nothing_of_the_rows(trail: Trail) -> None:
    rewrite(
        trail.table(PAYLOAD), lambda rows: put(rows, where(1)(rows), row=lambda row: {**row, "name": "canary-4711"})
    )
    found, _ = verify_trail(trail.tables, [])
    assert [finding.kind for finding in found.findings] == ["altered"] * 6
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
    found, _ = verify_trail(Trail(spark, path, checkpoint).tables, [Seen(checkpoint, "a safe", True)])
    assert (found.findings, found.last_version, found.sealed_version) == ((), 1, 1)
