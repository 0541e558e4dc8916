"""A trail that is right in itself: removals that records tell of, and forgeries that only what stands outside can tell."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from audit.anchors.base import AnchorFailure, NamedAnchor
from audit.anchors.file import FileAnchor
from audit.audit_trail import Trail as AuditTrail
from audit.errors import AnchorUnavailable, ForkedTrail
from audit.hashing.merkle import merkle_root
from audit.hashing.row_encoding import encode_rows
from audit.proof import Checkpoint, check, read_proof
from audit.signing.signer import Signer
from audit.trail.redaction import canonical_json
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from audit.verification import CHECKPOINTS, FoundCheckpoint, VerifiedState, verify_trail
from cdf.errors import CdfError, ConfigError, VerificationError
from cdf.sink.contract import Source
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table, setting
from tests.integration.intruder import rewrite
from tests.integration.trail_case import KEY, Trail, as_insert, chained, event_of, put, run, sealed, where


@pytest.fixture(scope="module")
def verified(whole_trail: Trail) -> VerifiedState:
    """What a verification found before anybody was at work."""
    _, verified = verify_trail(whole_trail.tables, [])
    assert verified is not None
    return verified


@pytest.fixture(scope="module")
def anew(whole_trail: Trail, tmp_path_factory: pytest.TempPathFactory) -> Trail:
    path = tmp_path_factory.mktemp("anew") / "trail"
    shutil.copytree(whole_trail.path, path)
    trail = dataclasses.replace(whole_trail, path=path)
    rewrite(trail.table(EVENTS), as_insert)
    rewrite(trail.table(PAYLOAD), lambda rows: put(rows, where(3)(rows), change_type=lambda _: "insert"))
    leaf = bytes(event_of(trail, 3, 0)["leaf"])

    def edit(rows: pa.Table) -> pa.Table:
        def other(text: str) -> str:
            record = {**json.loads(text), "counts": {"insert": 1}, "rows_root": leaf.hex()}
            return canonical_json(record).decode()

        return chained(put(rows, where(3)(rows), record=other, chunk_roots=lambda _: leaf))

    trail.sql(LEDGER, "optimize {t}")
    assert rewrite(trail.table(LEDGER), edit) == 1
    return trail


@pytest.fixture(scope="module")
def forged(anew: Trail) -> FoundCheckpoint:
    """A checkpoint of it, signed with the stolen key."""
    return FoundCheckpoint(sealed(anew.spark, anew.path), "the trail", True)


@pytest.mark.usefixtures("interpreted")
class TestAllOfItWrittenAnew:
    """In its own place, and with every hash right: only what stands outside can tell."""

    def test_a_checkpoint_in_a_safe_tells(self, anew: Trail, forged: FoundCheckpoint) -> None:
        kept = FoundCheckpoint(anew.checkpoint, "a safe", True)
        assert anew.findings(kept, forged) == [("replaced", LEDGER, 6, None)]

    def test_nothing_in_it_can_be_proven(self, anew: Trail, tmp_path: Path) -> None:
        anchor = FileAnchor(tmp_path)
        anchor.publish(anew.checkpoint.origin, KEY.sign(anew.checkpoint))
        named = [NamedAnchor("a safe", anchor)]
        trail = AuditTrail(anew.spark, str(anew.path), keys=[KEY.verifier], anchors=named)
        for version in (1, 3):
            with pytest.raises(VerificationError, match="cannot be proven"):
                trail.prove(version, 0, show_row=True)
        with pytest.raises(ConfigError, match="has no event"):
            trail.prove(1, 6)

    def test_after_it_was_verified(self, anew: Trail, forged: FoundCheckpoint, verified: VerifiedState) -> None:
        assert anew.findings(forged, before=verified) == [("replaced", LEDGER, 6, None)]
        assert ("replaced", LEDGER, None, None) in anew.findings(forged, since=verified)
        elsewhere = dataclasses.replace(verified, origin="deltarelay.audit/another")
        assert anew.findings(forged, since=elsewhere) == [("replaced", LEDGER, None, None)]

    def test_a_quick_look_with_an_old_checkpoint(
        self, whole_trail: Trail, anew: Trail, forged: FoundCheckpoint
    ) -> None:
        """What is brought is compared wherever it ends."""
        found, since = verify_trail(anew.tables, [forged])
        assert found.findings == ()  # signer and all keepers together
        old = FoundCheckpoint(checkpoint_over(whole_trail, 5), "a safe", True)
        assert anew.findings(old, since=since) == []  # as anchors have it: compared when it was new
        assert anew.findings(old, since=since, brought=True) == [("replaced", LEDGER, 4, None)]


def checkpoint_over(trail: Trail, size: int) -> Checkpoint:
    rows = trail.tables.read(LEDGER).where(f"sequence < {size}").orderBy("sequence").select("leaf").collect()
    return Checkpoint(trail.checkpoint.origin, size, merkle_root([bytes(row["leaf"]) for row in rows]))


REMOVED = ((1, 0), (1, 2), (3, 0))


@pytest.fixture(scope="module")
def lessened(whole_trail: Trail, tmp_path_factory: pytest.TempPathFactory) -> Trail:
    path = tmp_path_factory.mktemp("removal") / "trail"
    shutil.copytree(whole_trail.path, path)
    source = Path(whole_trail.path).parent / "source"
    schema = whole_trail.spark.read.format("delta").load(str(source)).schema
    sink = DeltaAuditSink(str(path), spark=whole_trail.spark, signer=KEY)
    sink.open(Source(str(source), "", schema, ("id",), "p"))
    places = whole_trail.spark.createDataFrame(list(REMOVED), "version long, index long")
    sink.remove(places, {"ticket": "T-1"})
    sink.close()
    return dataclasses.replace(whole_trail, path=path, checkpoint=sealed(whole_trail.spark, path))


@pytest.mark.usefixtures("interpreted")
class TestRemovals:
    """Values that a record names may be gone, and nothing else."""

    @pytest.fixture
    def trail(self, lessened: Trail, tmp_path: Path) -> Trail:
        path = tmp_path / "copy"
        shutil.copytree(lessened.path, path)
        return dataclasses.replace(lessened, path=path)

    def test_are_no_fault(self, lessened: Trail, verified: VerifiedState) -> None:
        seal = FoundCheckpoint(lessened.checkpoint, "a safe", True)
        found, _ = verify_trail(lessened.tables, [seal])
        assert (found.findings, found.events, found.values, found.removed) == ((), 12, 9, 3)
        assert (found.records, found.last_version, found.sealed_version) == (8, 6, 6)
        found, later = verify_trail(lessened.tables, [seal], since=verified)
        assert (found.level, found.findings, found.removed) == ("quick", (), 3)
        assert later is not None
        found, _ = verify_trail(lessened.tables, [seal], since=VerifiedState.from_json(later.to_json()))
        assert (found.findings, found.records, found.events) == ((), 0, 0)

    def test_cover_no_others(self, trail: Trail) -> None:
        event = event_of(trail, 1, 1)
        trail.sql(PAYLOAD, f"delete from {{t}} where id = x'{bytes(event['id']).hex()}'")
        assert trail.findings() == [("missing", PAYLOAD, 1, 1)]

    def test_of_values_that_are_there_again(self, trail: Trail, verified: VerifiedState) -> None:
        """A restore brings them back; a removal that broke off has left them."""
        latest = DeltaTable.forPath(trail.spark, str(trail.table(PAYLOAD))).history(1).collect()[0]["version"]
        trail.sql(PAYLOAD, f"restore table {{t}} to version as of {latest - 1}")
        there = [("returned", PAYLOAD, version, index) for version, index in REMOVED]
        assert trail.findings() == there
        assert trail.findings(since=verified) == there

    def test_that_is_being_done(self, whole_trail: Trail, trail: Trail) -> None:
        """It is recorded, and not yet sealed; the values are there first, and then gone."""
        sealed_before = FoundCheckpoint(whole_trail.checkpoint, "a safe", True)
        found, now = verify_trail(trail.tables, [sealed_before], keys=[KEY.verifier])
        assert (found.findings, found.removed, found.unfinished, found.sealed_version) == ((), 3, 0, 6)
        assert now is not None
        latest = DeltaTable.forPath(trail.spark, str(trail.table(PAYLOAD))).history(1).collect()[0]["version"]
        trail.sql(PAYLOAD, f"restore table {{t}} to version as of {latest - 1}")
        found, now = verify_trail(trail.tables, [sealed_before], keys=[KEY.verifier])
        assert (found.findings, found.removed, found.unfinished, now) == ((), 0, 3, None)
        # Nobody whose key is trusted has left it so
        somebody = [Signer.generate("example.org/somebody").verifier]
        unsigned = ("not_signed", LEDGER, None, None)
        there = [("returned", PAYLOAD, version, index) for version, index in REMOVED]
        assert trail.findings(sealed_before, keys=somebody) == [unsigned, *there]
        down = [AnchorFailure("a bank", AnchorUnavailable("no answer"))]
        assert trail.findings(sealed_before, unreachable=down) == there

    def test_made_up(self, whole_trail: Trail, lessened: Trail, tmp_path: Path) -> None:
        """By whoever deletes a row, and adds a record of it that fits: nobody has signed that."""
        path = tmp_path / "copy"
        shutil.copytree(whole_trail.path, path)
        trail = dataclasses.replace(whole_trail, path=path)
        (row,) = lessened.tables.read(LEDGER).where("kind = 'removal'").collect()
        text = {**json.loads(row["record"]), "removed": {"1": [[1, 1]]}, "values": 1}

        def edit(rows: pa.Table) -> pa.Table:
            (last,) = rows.filter(pc.equal(rows["sequence"], 6)).to_pylist()
            record = {"kind": "removal", "version": None, "events": 0, "chunk_roots": b"", "sequence": 7}
            made = {**last, **record, "record": canonical_json(text).decode()}
            at = dt.datetime.fromisoformat(text["removed_at"]).replace(tzinfo=None)
            made["committed_at"] = at
            return chained(pa.concat_tables([rows, pa.Table.from_pylist([made], schema=rows.schema)]))

        event = event_of(trail, 1, 1)
        trail.sql(PAYLOAD, f"delete from {{t}} where id = x'{bytes(event['id']).hex()}'")
        trail.sql(LEDGER, "optimize {t}")
        assert rewrite(trail.table(LEDGER), edit) == 1
        assert trail.findings() == [("not_signed", LEDGER, None, None)]
        # A checkpoint that covers the place knows another record there
        assert trail.findings(FoundCheckpoint(lessened.checkpoint, "a safe", True)) == [("replaced", LEDGER, 6, None)]


@pytest.mark.usefixtures("interpreted")
class TestAnchors:
    """What one of them does keeps the others from nothing."""

    @pytest.fixture
    def anchors(self, tmp_path: Path) -> list[NamedAnchor]:
        for name in ("good", "junk"):
            (tmp_path / name).mkdir()
        return [NamedAnchor(name, FileAnchor(tmp_path / name)) for name in ("gone", "junk", "good")]

    def test_one_is_gone_and_one_has_junk(self, whole_trail: Trail, tmp_path: Path, anchors: list[NamedAnchor]) -> None:
        origin = whole_trail.tables.origin()
        somebody = Signer.generate("example.org/somebody")
        anchors[1].anchor.publish(origin, somebody.sign(Checkpoint(origin, 3, bytes(32))))
        trail = AuditTrail(whole_trail.spark, str(whole_trail.path), signer=KEY, anchors=anchors)
        sealed = trail.checkpoint()
        assert (sealed.records, sealed.version, sealed.anchors) == (7, 6, ("good",))
        assert [(one.anchor, type(one.error)) for one in sealed.missed] == [
            ("gone", AnchorUnavailable),
            ("junk", VerificationError),
        ]
        seen, missed = trail.read_checkpoints()
        assert [(one.where, one.signed) for one in seen] == [("junk", False), ("good", True)]
        assert [one.anchor for one in missed] == ["gone"]
        assert trail.read_checkpoints(least=4)[0] == seen[1:]
        found, _ = trail.verify()
        assert [(one.kind, one.table) for one in found.findings] == [("not_signed", CHECKPOINTS)]
        assert (found.sealed_version, [one.anchor for one in found.unreachable]) == (6, ["gone"])
        assert check(trail.prove(1, 5), [str(KEY.verifier)], origin=origin).event["index"] == 5

        # Junk in front of what is right is looked past; something larger that is right in form tells of a fork
        (folder,) = (tmp_path / "good").iterdir()
        (folder / f"{8:020}.txt").write_text("junk")
        assert trail.prove(1, 5)
        with pytest.raises(ForkedTrail):
            AuditTrail(
                whole_trail.spark, str(whole_trail.path), signer=somebody, keys=[KEY.verifier], anchors=anchors[1:]
            ).checkpoint()

    def test_none_of_them_or_none_set(self, whole_trail: Trail, anchors: list[NamedAnchor]) -> None:
        def trail(*anchors: NamedAnchor) -> AuditTrail:
            return AuditTrail(whole_trail.spark, str(whole_trail.path), signer=KEY, anchors=anchors)

        gone: list[tuple[AuditTrail, type[CdfError]]] = [(trail(anchors[0]), AnchorUnavailable), (trail(), ConfigError)]
        for one, error in gone:
            with pytest.raises(error):
                one.prove(1, 0)
        with pytest.raises(AnchorUnavailable):
            trail(anchors[0]).checkpoint()
        assert trail().checkpoint().anchors == ()
        found, _ = trail(anchors[2]).verify()
        assert [(one.kind, one.table) for one in found.findings] == [("not_signed", LEDGER)]
        found, _ = trail().verify()
        assert (found.findings, found.sealed_version) == ((), None)
        assert any("there was no checkpoint from outside" in gap for gap in found.not_covered)


VALUES = "id long, v string, f double, m map<string, int>, t timestamp, d decimal(38, 0), n struct<a: array<timestamp>>"
ROWS = (
    "(1, null, null, null, null, null, null)",
    "(1, '', null, null, null, null, null)",
    "(1, '', null, null, null, null, null)",
    "(1, null, double('NaN'), null, null, null, null)",
    "(1, null, double('0.0'), null, null, null, null)",
    "(1, null, double('-0.0'), null, null, null, null)",
    "(1, null, null, map('a', 1, 'b', 2), null, null, null)",
    "(1, null, null, map('b', 2, 'a', 1), null, null, null)",
    "(1, null, null, map('a', 2, 'b', 1), null, null, null)",
    "(1, null, null, null, timestamp'0001-01-01 00:00:00', -99999999999999999999999999999999999999, null)",
    "(1, null, null, null, timestamp'9999-12-31 23:59:59.999999', 99999999999999999999999999999999999999, null)",
    "(1, null, null, null, timestamp'9999-12-31 23:59:59.999998', 99999999999999999999999999999999999999, null)",
    "(1, null, null, null, null, null, named_struct('a', array(timestamp'2026-03-29 02:30:00', null)))",
    "(1, null, null, null, null, null, named_struct('a', array(timestamp'2026-03-29 01:30:00', null)))",
)
DIFFERENT = len(ROWS) - 3
"""One is there twice, one zero has a sign, one map is in another order."""


def test_equal_rows_hash_equally_in_every_time_zone_and_different_ones_differently(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Table(spark, str(tmp_path / "source"), VALUES)
    source.sql("insert into {t} values " + ", ".join(ROWS))
    (tmp_path / "anchor").mkdir()
    anchor = NamedAnchor("a safe", FileAnchor(tmp_path / "anchor"))
    zones = ["America/New_York", "Asia/Kolkata"]
    encoded: list[list[bytes]] = []
    trails = [AuditTrail(spark, str(tmp_path / f"trail{at}"), signer=KEY, anchors=[anchor]) for at in range(2)]
    for zone, trail in zip(zones, trails, strict=True):
        with setting(spark, "spark.sql.session.timeZone", zone):
            run(spark, source, Path(trail.path))
            trail.checkpoint()
    for zone, trail in zip([*zones[1:], zones[0]], trails, strict=True):  # each by those of another place
        with setting(spark, "spark.sql.session.timeZone", zone):
            found, _ = trail.verify()
            assert (found.findings, found.values, found.sealed_version) == ((), len(ROWS), 1)
            proof = trail.prove(1, 3, show_row=True)
            rows = trail.tables.read(PAYLOAD).select("row.*")
            encoded.append(sorted(encode_rows(rows.toArrow().combine_chunks().to_batches()[0], rows.schema)))
        assert check(proof, [str(KEY.verifier)]).event["version"] == 1
        assert read_proof(proof).row in encoded[-1]
    assert encoded[0] == encoded[1]
    assert len(set(encoded[0])) == DIFFERENT
