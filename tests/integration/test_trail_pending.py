"""A trail whose runner died between its three steps: the next one finishes that window, and each event is there once."""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from audit.checkpoints.sign_ledger import sign_ledger
from audit.errors import ForkedTrail
from audit.signing.signer import Signer
from audit.trail.ledger_state import read_state_from_records
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TABLES, TrailTables
from audit.verification import VerifiedState, verify_trail
from cdf import ChangeFeed, Pipeline
from cdf.errors import SinkUnavailable
from cdf.sink import Bounds, Source
from cdf.testing.conformance.harness import NEXT, orders
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table
from tests.integration.intruder import rewrite

pytestmark = pytest.mark.usefixtures("interpreted")


class Died(BaseException):
    """The process is gone: nothing more is written or given back."""


def pipeline(spark: SparkSession, source: Table, path: Path, **options: Any) -> Pipeline:
    sink = DeltaAuditSink(str(path), spark=spark, **options)
    return Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest")


def dies(
    spark: SparkSession,
    source: Table,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    at: str,
    until: int | None = None,
    **options: Any,
) -> None:
    """Run until the step ``at`` is about to be made durable; the lease has run out since."""
    real = TrailTables.append

    def append(tables: TrailTables, name: str, rows: DataFrame, *, about: Mapping[str, Any], **more: Any) -> int:
        if name == at and "opened" not in about:
            raise Died
        return real(tables, name, rows, about=about, **more)

    run = pipeline(spark, source, path, **options).run
    with monkeypatch.context() as patched:
        patched.setattr(TrailTables, "append", append)
        with pytest.raises(Died):
            run(until)
    lease = path / "_lease"
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "seconds": 0}))


@pytest.fixture(scope="module", autouse=True)
def far_west() -> Iterator[None]:
    """The driver's own time zone, which no event may have in its time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


BOTH_WAYS = pytest.mark.parametrize("options", [{}, {"small_window_bytes": -1}], ids=["driver", "tasks"])


@pytest.fixture(scope="module")
def four(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A source at version 4, for those who only read it."""
    source = Table(spark, str(tmp_path_factory.mktemp("four") / "source"))
    source.sql(
        "insert into {t} values (1, 'a'), (2, 'b')",
        "update {t} set v = 'c' where id = 1",
        "delete from {t} where id = 2",
        "insert into {t} values (3, null)",
    )
    return source


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A source at version 1, and beside it its trail."""
    folder = tmp_path_factory.mktemp("begun")
    source = Table(spark, str(folder / "source"))
    source.sql("insert into {t} values (1, 'a')")
    pipeline(spark, source, folder / "trail").run()
    return source


@pytest.fixture
def begun(original: Table, tmp_path: Path) -> tuple[Table, Path]:
    """A copy of ``original``: the source, and the trail's folder."""
    shutil.copytree(Path(original.path).parent, tmp_path / "begun")
    source = copy.copy(original)
    source.path = str(tmp_path / "begun/source")
    source.log = Path(source.path, "_delta_log")
    return source, tmp_path / "begun/trail"


@BOTH_WAYS
def test_the_next_runner_finishes_the_window(
    spark: SparkSession, four: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    path = tmp_path / "trail"
    tables = TrailTables(spark, str(path))
    about = Source(four.path, "", spark.read.format("delta").load(four.path).schema, ("id",), "p")
    # The second begins anew: payload alone is no more than a rest. The third finishes what has its events
    for at, pending, events in ((EVENTS, None, 0), (LEDGER, Bounds(0, 2), 4)):
        dies(spark, four, path, monkeypatch, at=at, until=2, **options)
        assert DeltaAuditSink(str(path), spark=spark).inspect(about).position.pending == pending
        assert (tables.read(PAYLOAD).count(), tables.read(EVENTS).count()) == (4, events)
    pipeline(spark, four, path, **options).run()
    verified, _ = verify_trail(tables, [])
    assert (verified.intact, verified.findings) == (True, ())
    assert (verified.first_version, verified.last_version, verified.events, verified.values) == (0, 4, 6, 6)


def test_what_is_new_alone_is_looked_at_after_a_verification(spark: SparkSession, begun: tuple[Table, Path]) -> None:
    source, path = begun
    tables = TrailTables(spark, str(path))
    _, state = verify_trail(tables, [])
    assert state is not None
    state = VerifiedState.from_json(state.to_json())
    source.sql("update {t} set v = 'c' where id = 1")
    pipeline(spark, source, path).run()
    found, later = verify_trail(tables, [], since=state)
    assert (found.level, found.intact, found.first_version, found.last_version) == ("quick", True, 2, 2)
    assert (found.records, found.events, found.values) == (1, 2, 2)
    assert later is not None
    assert (later.size, later.version) == (3, 2)

    rewrite(path / EVENTS, lambda rows: rows.slice(0, rows.num_rows - 1))  # of the latest commit's file
    found, after = verify_trail(tables, [], since=state)
    assert [(one.kind, one.table) for one in found.findings][:1] == [("missing", EVENTS)]
    assert after is None

    for name in TABLES:
        rewrite(path / name, lambda rows: rows.filter(pc.less(rows["version"], 1)))
    found, _ = verify_trail(tables, [], since=state)
    assert ("cut_off", LEDGER) in [(one.kind, one.table) for one in found.findings]


def test_what_contradicts_an_earlier_checkpoint_is_not_signed(spark: SparkSession, begun: tuple[Table, Path]) -> None:
    (_, path), key = begun, Signer.generate("example.org/test")
    tables = TrailTables(spark, str(path))
    state = read_state_from_records(tables)
    note, version = sign_ledger(tables, key, state)
    assert sign_ledger(tables, key, state, before=[note]) == (note, version)

    def other(text: str) -> str:
        return text.replace('"operation":"WRITE"', '"operation":"MERGE"')

    def edit(rows: Any) -> Any:
        place = rows.schema.get_field_index("record")
        return rows.set_column(place, rows.schema.field(place), [[other(text) for text in rows["record"].to_pylist()]])

    assert rewrite(path / LEDGER, edit)
    with pytest.raises(ForkedTrail):
        sign_ledger(tables, key, state, before=[note])


def test_a_window_with_a_new_column_is_finished_with_that_column(
    spark: SparkSession, begun: tuple[Table, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = begun
    source.sql("alter table {t} add column note string", "insert into {t} values (2, 'b', 'n')")
    dies(spark, source, path, monkeypatch, at=LEDGER)
    found, _ = verify_trail(TrailTables(spark, str(path)), [])  # beside the window that is being written
    assert (found.findings, found.last_version, found.unrecorded) == ((), 1, 1)
    pipeline(spark, source, path).run()
    found, _ = verify_trail(TrailTables(spark, str(path)), [])
    assert (found.findings, found.last_version, found.events, found.unrecorded) == ((), 3, 2, 0)


def test_a_trail_that_was_restored_gets_its_events_again(spark: SparkSession, begun: tuple[Table, Path]) -> None:
    source, path = begun
    before = {name: DeltaTable.forPath(spark, str(path / name)).history(1).collect()[0][0] for name in TABLES}
    source.sql("insert into {t} values (2, 'b'), (3, 'c')")
    pipeline(spark, source, path).run()
    for name, version in before.items():
        spark.sql(f"restore table delta.`{path / name}` to version as of {version}")
    pipeline(spark, source, path).run()
    tables = TrailTables(spark, str(path))
    found, _ = verify_trail(tables, [])
    assert (found.findings, found.last_version, found.events, found.values) == ((), 2, 3, 3)


def test_the_same_window_again_after_a_failure_on_one_open_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = orders(spark), tmp_path / "trail"
    sink = DeltaAuditSink(str(path), spark=spark)
    sink.open(table.source())
    real, failing = TrailTables.append, list[str]()

    def append(tables: TrailTables, name: str, rows: DataFrame, *, about: Mapping[str, Any], **more: Any) -> int:
        landed = real(tables, name, rows, about=about, **more)
        if [name] == failing:
            failing.clear()
            raise SinkUnavailable("the answer was lost")
        return landed

    monkeypatch.setattr(TrailTables, "append", append)
    for version, at in enumerate((LEDGER, EVENTS, PAYLOAD), start=5):
        failing.append(at)
        with pytest.raises(SinkUnavailable):
            sink.apply(table.window(version, NEXT))
        sink.apply(table.window(version, NEXT))
    sink.close()
    found, _ = verify_trail(TrailTables(spark, str(path)), [])
    assert (found.findings, found.records, found.events, found.values) == ((), 3, 12, 12)


KINDS = (
    "id long, `full name` string, at timestamp_ntz, l array<struct<a: int>>, m map<string, struct<b: date>>, "
    "d decimal(38, 9)"
)


@pytest.fixture(scope="module")
def kinds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    properties = {"columnMapping.mode": "name"}
    source = Table(spark, str(tmp_path_factory.mktemp("kinds") / "source"), KINDS, **properties)  # type: ignore[arg-type]
    source.sql(
        "insert into {t} values (1, 'a', timestamp_ntz'2026-03-29 02:30:00', array(null, named_struct('a', 1)),"
        " map('k', null, 'l', named_struct('b', date'0001-01-01')), 0.000000001), (2, null, null, null, null, null)",
        "update {t} set `full name` = '' where id = 2",
        "update {t} set l = array() where id in (1, 2)",
    )
    return source


@BOTH_WAYS
def test_names_and_types_on_both_ways(
    spark: SparkSession, kinds: Table, tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "trail"
    pipeline(spark, kinds, path, **options).run()
    tables = TrailTables(spark, str(path))
    found, _ = verify_trail(tables, [])
    assert (found.findings, found.events, found.values) == ((), 8, 8)
    assert "full_name" in tables.read(PAYLOAD).select("row.*").columns
    changed = {
        tuple(row[0])
        for row in tables.read(EVENTS).where("changed_columns is not null").select("changed_columns").collect()
    }
    assert changed == {("full name",), ("l",)}
