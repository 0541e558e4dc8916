"""Which rows an erasure catches, and the commits that erase them: on real tables, whose logs and plans are searched."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from audit import hidden_rows
from audit.erasure.commit_marker import erasing_metadata
from audit.erasure.erase import delete
from audit.erasure.erase.delete import Deleted, erase_table, erased_keys, erased_versions
from audit.erasure.find import learn
from audit.erasure.find.resolve import Matched, Resolution
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.model import Link, PersonalTable, Request, Subject
from cdf.errors import ConfigError, SourceError, SourceUnavailable, TableNotFound
from tests.integration.delta_table import Table, setting
from tests.integration.erasures import MARKER
from tests.integration.executions import Executions

CANARY = "Canary.Quill@example.org"
RUN = "run-1"
CUSTOMER = Subject("customer", {"email": "email", "customer_id": "exact"})
SUBJECTS = {"customer": CUSTOMER}
TODAY = dt.date(2026, 11, 23)

pytestmark = pytest.mark.usefixtures("interpreted")


def request(id: str, **identifiers: str) -> Request:
    return Request(id, "customer", identifiers, TODAY, TODAY + dt.timedelta(30), "consent withdrawn", "desk")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def read(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return rows(spark.read.format("delta").load(path))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


def infos(table: Table) -> list[dict[str, Any]]:
    lines = (line for file in sorted(table.log.glob("*.json")) for line in file.read_text().split("\n"))
    return [json.loads(line)["commitInfo"] for line in lines if line.startswith('{"commitInfo"')]


def erase(spark: SparkSession, one: PersonalTable, resolution: Resolution, **kept: int) -> Deleted:
    return erase_table(
        spark,
        one,
        resolution.caught(one.table),
        run=RUN,
        requests=["r1"],
        since=kept.get("since", resolution.versions[one.table]),
        marker=MARKER,
    )


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """Customers, their orders by customer, the lines of these by order, contacts by e-mail alone. Tests change copies."""
    tmp_path = tmp_path_factory.mktemp("shop")
    made = {
        "customers": Table(spark, str(tmp_path / "customers"), "CUSTOMER_ID long, Email string, name string"),
        "orders": Table(spark, str(tmp_path / "orders"), "order_id long, customer_id long, sum long"),
        "lines": Table(spark, str(tmp_path / "lines"), "order_id string, item string"),
        "contacts": Table(spark, str(tmp_path / "contacts"), "email string, phone string"),
    }
    one_file = "insert into {t} select /*+ coalesce(1) */ * from values "
    made["customers"].sql(
        f"{one_file} (7, '{CANARY}', 'Quill'), (8, 'bob@example.org', 'Bob'), (9, null, 'Nobody'), "
        "(10, '', 'Blank'), (null, 'bob@example.org', 'Bob, half'), (77, 'no.canary.quill@example.org', 'Other')"
    )
    made["orders"].sql(
        f"{one_file} (100, 7, 5), (101, 7, 6), (102, 8, 7), (103, null, 8)", f"{one_file} (null, 7, 9), (104, 8, 1)"
    )
    made["lines"].sql(f"{one_file} ('100', 'ink'), ('101', 'pen'), ('102', 'cup'), ('x', 'hat'), (null, 'bow')")
    made["contacts"].sql(f"{one_file} ('\t {CANARY.upper()} \u00a0', '1'), ('bob@example.org', '2'), (null, '3')")
    return made


@pytest.fixture
def shop(built: dict[str, Table], tmp_path: Path) -> dict[str, Table]:
    return {name: table.copy(tmp_path / name) for name, table in built.items()}


def tables(shop: dict[str, Table]) -> list[PersonalTable]:
    path = {name: table.path for name, table in shop.items()}
    return [
        PersonalTable(path["customers"], "customer", "customer_id"),
        PersonalTable(path["contacts"], "customer", "email", ("phone", "email"), "nullify"),
        PersonalTable(path["orders"], "customer", Link("customer_id", path["customers"], "customer_id")),
        PersonalTable(path["lines"], "customer", Link("order_id", path["orders"], "order_id")),
    ]


def test_rows_that_were_counted_are_caught_without_reading_again(spark: SparkSession, shop: dict[str, Table]) -> None:
    resolution = Resolution.of(
        spark, tables(shop), SUBJECTS, [request("r1", email=CANARY), request("r2", customer_id="8")]
    )
    places = [table.path for table in shop.values()]
    before = {place: rows(resolution.caught(place)) for place in places}
    assert sum(map(len, before.values())) == 13
    watched = Executions(spark)
    with setting(spark, "spark.sql.maxMetadataStringLength", "10000"):  # or the path of a table may be cut short
        resolution.counts()
    # Each table once, also those that links of others lead to
    assert [watched.files_read(Path(place)) for place in places] == [1, 2, 1, 1]
    counted = {place: resolution.caught(place) for place in places}
    assert all("InMemoryTableScan" in plan_of(frame) for frame in counted.values())
    assert {place: rows(frame) for place, frame in counted.items()} == before
    assert {place: frame.columns for place, frame in counted.items()} == {
        place: resolution.caught(place).columns for place in places
    }
    resolution.close()
    assert not any("InMemoryTableScan" in plan_of(resolution.caught(place)) for place in places)


def test_linked_tables_match_the_same_rows_with_and_without_those_that_were_kept(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Random rows, in which requests share rows, links lead to several rows or to none, and text leads to numbers."""
    chance = random.Random(seed)

    def cells(kind: str, count: int) -> str:
        numbers = [None if chance.random() < 0.1 else chance.randrange(12) for _ in range(count)]
        return ", ".join("null" if one is None else f"'{one}'" if kind == "string" else str(one) for one in numbers)

    names = {
        "customers": ("CUSTOMER_ID", "group_no"),
        "orders": ("Customer_Id", "Order_Id"),
        "lines": ("order_id", "n"),
    }
    made = {}
    for name, (first, second) in names.items():
        types = [chance.choice(("string", "long", "int")) for _ in range(2)]
        made[name] = Table(spark, str(tmp_path / name), f"{first} {types[0]}, `{second}` {types[1]}, email string")
        rows_of_table = zip(*(cells(kind, 30).split(", ") for kind in types), strict=True)
        mails = [f"'m{chance.randrange(40)}@example.org'" for _ in range(30)]
        values = ", ".join(f"({a}, {b}, {mail})" for (a, b), mail in zip(rows_of_table, mails, strict=True))
        made[name].sql(f"insert into {{t}} values {values}")
    path = {name: table.path for name, table in made.items()}
    links = [Link("CUSTOMER_ID", path["customers"], "group_NO"), Link("ORDER_ID", path["orders"], "order_id")]
    configured = [
        PersonalTable(path["customers"], "customer", "customer_id"),
        PersonalTable(path["orders"], "customer", links[0]),
        PersonalTable(path["lines"], "customer", links[1]),
    ]
    asked = [request(f"r{at}", customer_id=str(at)) for at in chance.sample(range(12), 4)]
    whole, kept = (
        Resolution.of(spark, configured, SUBJECTS, asked, versions=dict.fromkeys(path.values(), 1)) for _ in "ab"
    )
    counts = kept.counts()
    for place in path.values():
        found = rows(whole.caught(place))
        assert rows(kept.caught(place)) == found
        by_request = Counter(row[0] for row in found)
        assert {id: matched.rows for (table, id), matched in counts.items() if table == place} == by_request
    assert counts


def test_an_address_is_found_however_rows_write_it(spark: SparkSession, shop: dict[str, Table]) -> None:
    """All of these are learned as they are written: a scan looks for each, and the registry of keys may know it."""
    written = ["jo\u0308rg@example.org", "\uff2a\u00f6rg@example.org", "j\u00f6rg \u200b@ EXAMPLE.org"]
    values = ", ".join(f"({20 + at}, '{one}', 'J')" for at, one in enumerate(written))
    shop["customers"].sql(f"insert into {{t}} values {values}, (30, 'jorg@example.org', 'other')")
    resolution = Resolution.of(spark, tables(shop)[:1], SUBJECTS, [request("r1", email="J\u00f6rg@example.org")])
    assert {caught.rows for caught in resolution.counts().values()} == {3}
    assert {one for _, name, one in resolution.learned() if name == "email"} == set(written)
    assert resolution.fan_out(10) == {"r1": "3 values of customer_id"}


def test_a_person_is_found_and_erased_in_every_table(spark: SparkSession, shop: dict[str, Table]) -> None:
    configured = tables(shop)
    path = {name: table.path for name, table in shop.items()}
    asked = [request("r1", email=CANARY.lower()), request("r2", customer_id="7"), request("r3", email="nobody@nowhere")]
    resolution = Resolution.of(spark, configured, SUBJECTS, asked)
    assert {(Path(table).name, id): found for (table, id), found in resolution.counts().items()} == {
        ("customers", "r1"): Matched(1, 1),
        ("customers", "r2"): Matched(1, 1),
        ("contacts", "r1"): Matched(1, 1),
        ("contacts", "r2"): Matched(1, 1),
        ("orders", "r1"): Matched(3, 2),
        ("orders", "r2"): Matched(3, 2),
        ("lines", "r1"): Matched(2, 1),
        ("lines", "r2"): Matched(2, 1),
    }
    assert sorted(resolution.learned()) == [("r1", "customer_id", "7"), ("r2", "email", CANARY)]
    assert CANARY not in repr(resolution)
    assert rows(resolution.caught(path["customers"])) == [("r1", CANARY, 7), ("r2", CANARY, 7)]

    # Frozen: what comes later is of another resolution; and taken up again it is the same one
    shop["customers"].sql(f"insert into {{t}} values (70, '{CANARY}', 'later')")
    again = Resolution.of(spark, configured, SUBJECTS, asked, resolution.learned(), versions=resolution.versions)
    assert again.counts() == resolution.counts()
    shop["customers"].sql("delete from {t} where customer_id = 70")

    before = {name: read(spark, table.path) for name, table in shop.items()}
    for one in reversed(configured):
        assert (
            erase(spark, one, again).rows
            == {"customers": 1, "contacts": 1, "orders": 3, "lines": 2}[Path(one.table).name]
        )
    after = {name: read(spark, table.path) for name, table in shop.items()}
    assert after["customers"] == [row for row in before["customers"] if row[0] != 7]
    assert after["orders"] == [row for row in before["orders"] if row[1] != 7]
    assert after["lines"] == [row for row in before["lines"] if row[0] not in ("100", "101")]
    assert after["contacts"] == sorted([(None, None), *(row for row in before["contacts"] if row[1] != "1")], key=repr)

    # Nothing is done twice, and who comes back after a crash hears of the commit that is there
    standing = {name: table.log.glob("*.json") for name, table in shop.items()}
    count = {name: len(list(files)) for name, files in standing.items()}
    deleted = [erase(spark, one, again) for one in configured]
    assert [one.rows for one in deleted] == [1, 1, 3, 2]
    assert [one.files for one in deleted] == [1, 1, 2, 1]
    assert [len(one.versions) for one in deleted] == [1] * 4
    assert {name: len(list(table.log.glob("*.json"))) for name, table in shop.items()} == count
    assert erased_versions(spark, path["orders"], "another", since=0, marker=MARKER) == ()

    keys = erased_keys(spark, path["orders"], deleted[2].versions, ("customer_id", "order_id"))
    assert rows(keys) == [(7, 100), (7, 101), (7, None)]
    assert rows(erased_keys(spark, path["contacts"], deleted[1].versions, ("phone",))) == [("1",)]
    assert rows(erased_keys(spark, path["contacts"], (), ("phone",))) == []

    # No value in what the log tells of any commit; the last names the run
    for name, table in shop.items():
        told = infos(table)
        assert CANARY.lower() not in json.dumps(told).lower(), name
        assert told[-1]["operation"] == "MERGE"
        assert json.loads(told[-1]["userMetadata"])["run"] == RUN
        assert "<=>" in told[-1]["operationParameters"]["predicate"]

    # Another writer copies what the commit says, before the run has taken down which ones are its own
    [metadata_of_run] = [one["userMetadata"] for one in infos(shop["orders"]) if RUN in one.get("userMetadata", "")]
    for metadata in (metadata_of_run, erasing_metadata(RUN, ["r1"])):
        with setting(spark, "spark.databricks.delta.commitInfo.userMetadata", metadata):
            shop["orders"].sql("delete from {t} where customer_id = 1")
            shop["orders"].sql("update {t} set customer_id = customer_id")
    assert erase(spark, configured[2], again) == deleted[2]

    # The control: a literal is found
    shop["customers"].sql(
        f"insert into {{t}} values (7, '{CANARY}', '')", f"delete from {{t}} where email = '{CANARY}'"
    )
    assert CANARY in json.dumps(infos(shop["customers"]))


def test_no_plan_shows_a_value(spark: SparkSession, built: dict[str, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    configured = tables(built)
    asked = [request("r1", email=CANARY), request("r2", customer_id="4711000815")]

    def shown() -> str:
        resolution = Resolution.of(spark, configured, SUBJECTS, asked)
        frames = [resolution.caught(one.table) for one in configured]
        frames += [resolution.catch(one.table, spark.read.format("delta").load(one.table)) for one in configured]
        for frame in frames:
            frame.collect()
        return "".join(map(plan_of, frames)).lower()

    plans = shown()
    assert "broadcast" in plans
    assert CANARY.lower() not in plans
    assert "4711000815" not in plans
    assert "localrelation" not in plans
    monkeypatch.setattr(
        hidden_rows, "_LOCAL_RELATION_THRESHOLD", "spark.deltarelay.no_such_setting"
    )  # the guard off: the plan holds the rows
    assert "localrelation" in shown()


def test_rows_of_other_frames_are_caught(spark: SparkSession, built: dict[str, Table]) -> None:
    """History has rows that the tables have lost, with columns of its own."""
    configured = tables(built)
    resolution = Resolution.of(spark, configured, SUBJECTS, [request("r1", email=CANARY)])
    history = spark.createDataFrame(
        [(1, 7, "old@example.org"), (2, 8, CANARY.upper()), (3, 8, "bob@example.org"), (3, None, None)],
        "version long, customer_id long, email string",
    )
    assert rows(resolution.catch(configured[0].table, history)) == [
        (1, 7, "old@example.org"),
        (2, 8, CANARY.upper()),
    ]
    assert rows(resolution.catch(configured[0].table, history.drop("email"))) == [(1, 7)]
    assert rows(resolution.catch(configured[2].table, history.drop("email"))) == [(1, 7)]
    with pytest.raises(ConfigError, match="without any of the columns"):
        resolution.catch(configured[0].table, history.select("version"))


def test_nobody_is_nobody(spark: SparkSession, built: dict[str, Table]) -> None:
    """An unknown person, a blank value and NULL catch nothing, and nothing is committed."""
    configured = tables(built)
    asked = [request("r1", email="nobody@nowhere"), request("r2", email=" "), request("r3", email="")]
    resolution = Resolution.of(spark, configured, SUBJECTS, asked)
    assert resolution.counts() == {}
    assert resolution.learned() == []
    assert [erase(spark, one, resolution) for one in configured] == [Deleted()] * 4
    assert [len(infos(table)) for table in built.values()] == [2, 3, 2, 2]
    with pytest.raises(ConfigError, match="r4 has phone"):
        Resolution.of(spark, configured, SUBJECTS, [request("r4", phone="1")])


def test_an_identifier_that_many_share(spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, for somebody to look at; what leads on and on, or to very many, is refused."""
    shared = Table(spark, delta_path, "customer_id string, email string")
    shared.sql("insert into {t} select concat('c', id), 'none@example.org' from range(3000)")
    one = [PersonalTable(delta_path, "customer", "customer_id")]
    found = Resolution.of(spark, one, SUBJECTS, [request("r1", customer_id="c5")])
    assert found.counts() == {(delta_path, "r1"): Matched(3000, found.counts()[delta_path, "r1"].files)}
    assert len(found.learned()) == 3000  # the e-mail, and all others that have it
    monkeypatch.setattr(learn, "_MOST_SHOWN", 1000)
    with pytest.raises(ConfigError, match=r"more than 1000 identifiers .* most of them of r1"):
        Resolution.of(spark, one, SUBJECTS, [request("r1", customer_id="c5")])
    shared.sql(
        "insert overwrite {t} select concat('c', id), concat('m', id) from range(20) "
        "union all select concat('c', id + 1), concat('m', id) from range(20)"
    )
    with pytest.raises(ConfigError, match="after 5 rounds the identifiers of r1 still lead"):
        Resolution.of(spark, one, SUBJECTS, [request("r1", customer_id="c0")])


def test_odd_columns_deletion_vectors_and_rows_that_are_empty_already(
    spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(
        spark,
        delta_path,
        "`e.mail` string, `na me.of` string, request long, n int not null",
        enableDeletionVectors="true",
        **{"columnMapping.mode": "name"},
    )
    table.sql(f"insert into {{t}} values ('{CANARY}', 'Quill', 1, 1), ('{CANARY}', null, 1, 2), ('b', 'Bob', 2, 3)")
    subjects = {"customer": Subject("customer", {"e.mail": "email", "request": "exact"})}
    one = PersonalTable(delta_path, "customer", "e.mail", ("na me.of",), "nullify")
    asked = [Request("r1", "customer", {"e.mail": CANARY}, TODAY, TODAY, "", "")]
    resolution = Resolution.of(spark, [one], subjects, asked)
    deleted = erase(spark, one, resolution)
    assert deleted.rows == 1
    assert read(spark, delta_path) == [(CANARY, None, 1, 1), (CANARY, None, 1, 2), ("b", "Bob", 2, 3)]
    assert erase(spark, one, resolution) == deleted
    assert rows(erased_keys(spark, delta_path, deleted.versions, ("na me.of", "n"))) == [("Quill", 1)]
    whole = PersonalTable(delta_path, "customer", "e.mail")
    assert erase(spark, whole, resolution, since=deleted.versions[-1]).rows == 2
    assert read(spark, delta_path) == [("b", "Bob", 2, 3)]
    table.sql("alter table {t} rename column `na me.of` to `na``me`")
    table.sql(f"insert into {{t}} values ('{CANARY}', 'Quill', 1, 1)")
    later = Resolution.of(spark, [whole], subjects, asked)
    with pytest.raises(ConfigError, match="backquote"):
        erase(spark, whole, later)
    monkeypatch.setattr(delete, "inspect_table", lambda *_: [])  # Delta's own words, while it has that fault
    with pytest.raises(SourceError, match="INVALID_ATTRIBUTE_NAME_SYNTAX"):
        erase(spark, whole, later)


def test_what_cannot_be_erased_is_told_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table = Table(spark, path, "email string, name string not null, tags array<string>", feed=False, appendOnly="true")
    table.sql(f"insert into {{t}} values ('{CANARY}', 'Quill', array('a'))")
    one = PersonalTable(path, "customer", "email", ("NAME", "nickname"), "nullify")
    problems = inspect_table(spark, one)
    for told in ("append-only", "change feed", f"{path}.name is NOT NULL", "no column nickname"):
        assert any(told in problem for problem in problems), told
    assert len(problems) == 4
    resolution = Resolution.of(spark, [one], SUBJECTS, [request("r1", email=CANARY)])
    with pytest.raises(ConfigError, match=r"append-only.*NOT NULL") as raised:
        erase(spark, one, resolution)
    assert CANARY not in str(raised.value)
    assert len(infos(table)) == 2
    with pytest.raises(TableNotFound):
        inspect_table(spark, PersonalTable(str(tmp_path / "gone"), "customer", "email"))
    for subject, column in (("email", "no_such"), ("tags", "tags")):
        with pytest.raises(ConfigError, match=column):
            Resolution.of(
                spark,
                [PersonalTable(path, "customer", column)],
                {"customer": Subject("customer", {subject: "exact"})},
                [],
            )


def test_a_constraint_that_refuses_the_emptied_row_shows_no_value(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, "email string, name string")
    table.sql("alter table {t} add constraint named check (name is not null)")
    table.sql(f"insert into {{t}} values ('{CANARY}', 'Quill')")
    one = PersonalTable(delta_path, "customer", "email", ("name",), "nullify")
    resolution = Resolution.of(spark, [one], SUBJECTS, [request("r1", email=CANARY)])
    with pytest.raises(ConfigError, match="constraint") as raised:
        erase(spark, one, resolution)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert read(spark, delta_path) == [(CANARY, "Quill")]


def test_other_writers(spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta's own refusal of a commit that others overtook is tried again, a few times."""
    table = Table(spark, delta_path, "email string, n int")
    table.sql(f"insert into {{t}} values ('{CANARY}', 0), ('b', 0)")
    one = PersonalTable(delta_path, "customer", "email")
    resolution = Resolution.of(spark, [one], SUBJECTS, [request("r1", email=CANARY)])
    monkeypatch.setattr(delete, "_PAUSE", 0.0)
    merge: Callable[..., None] = delete._merge
    tries: list[int] = []

    def overtaken(times: int) -> Callable[..., None]:
        def merging(*told: Any) -> None:
            tries.append(1)
            if len(tries) <= times:
                conflict(spark, table)
            merge(*told)

        return merging

    monkeypatch.setattr(delete, "_merge", overtaken(99))
    with monkeypatch.context() as patched:
        patched.setattr(delete, "_TRIES", 2)
        with pytest.raises(SourceUnavailable, match="committed first in all 2 attempts"):
            erase(spark, one, resolution)
    assert len(tries) == 2
    tries.clear()
    monkeypatch.setattr(delete, "_merge", overtaken(2))
    assert erase(spark, one, resolution).rows == 1
    assert len(tries) == 3
    assert {row[0] for row in read(spark, delta_path)} == {"b"}


def conflict(spark: SparkSession, table: Table) -> None:
    """A transaction of Delta's that read the whole table, and that another writer overtakes before it commits."""
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta
    transaction = delta.DeltaLog.forTable(spark._jsparkSession, table.path).startTransaction()
    transaction.filterFiles()
    table.sql("update {t} set n = n + 1 where email = 'b'")
    nothing = jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
    operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    transaction.commit(nothing, operation)
