"""Values that change places under a second unique index, and foreign keys: each window ends as the source stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.errors import RowRejected
from cdf.sink import Conflicts
from cdf.testing import SampleTable, delete, insert, update
from cdf.testing.changes import Edit, Row
from connectors.postgres import PostgresSink
from connectors.postgres.options import Modes, Rejects
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, position, sink_of, tells

START = {1: "xanadu-a", 2: "xanadu-b", 3: "xanadu-c", 4: None, 5: "xanadu-e"}
ASIDE = Modes(rejects="dead_letter")

UNIQUE = {
    "index": "create unique index one_mail on target (mail)",
    "partial": "create unique index one_mail on target (mail) where id < 100",
    "expression": "create unique index one_mail on target (lower(mail))",
    "no two nulls": "create unique index one_mail on target (mail) nulls not distinct",
    "deferrable": "alter table target add constraint one_mail unique (mail) deferrable",
    "deferred": "alter table target add constraint one_mail unique (mail) deferrable initially deferred",
    "exclusion": "alter table target add constraint one_mail exclude (mail with =)",
}


def mailboxes(session: SparkSession | None) -> SampleTable:
    return SampleTable(session, StructType().add("id", "long").add("mail", "string"), ("id",))


def row(number: int, mail: str | None) -> Row:
    return {"id": number, "mail": mail}


def moved(**to: str | None) -> list[Edit]:
    """Rows (``r1`` …) of START that get other addresses."""
    return [update(row(int(n[1:]), START[int(n[1:])]), row(int(n[1:]), mail)) for n, mail in to.items()]


def mails(pg: Pg) -> dict[int, str | None]:
    return dict(pg.query("select id, mail from target"))


@contextmanager
def filled(pg: Pg, table: SampleTable, *ddl: str, **options: object) -> Iterator[PostgresSink]:
    with loaded(pg, table, [row(*one) for one in START.items()], **options) as sink:
        for statement in ddl:
            pg.query(statement)
        yield sink


CHANGES: dict[str, tuple[list[Edit], dict[int, str | None]]] = {
    "two": (moved(r1="xanadu-b", r2="xanadu-a"), {**START, 1: "xanadu-b", 2: "xanadu-a"}),
    "three in a circle": (
        moved(r1="xanadu-b", r2="xanadu-c", r3="xanadu-a"),
        {**START, 1: "xanadu-b", 2: "xanadu-c", 3: "xanadu-a"},
    ),
    "a chain": (moved(r3="new", r2="xanadu-c", r1="xanadu-b"), {**START, 3: "new", 2: "xanadu-c", 1: "xanadu-b"}),
    "with a null": (moved(r1=None, r4="xanadu-a"), {**START, 1: None, 4: "xanadu-a"}),
    "of one that is deleted": (
        [delete(row(2, "xanadu-b")), *moved(r1="xanadu-b")],
        {number: mail for number, mail in {**START, 1: "xanadu-b"}.items() if number != 2},
    ),
    "of one that is updated, by a new one": (
        [insert(row(9, "xanadu-a")), *moved(r1="elsewhere")],
        {**START, 1: "elsewhere", 9: "xanadu-a"},
    ),
    "and new ones beside": (
        [*moved(r1="xanadu-b", r2="xanadu-a"), insert(row(9, "n")), delete(row(5, "xanadu-e"))],
        {1: "xanadu-b", 2: "xanadu-a", 3: "xanadu-c", 4: None, 9: "n"},
    ),
}


@pytest.mark.parametrize(
    ("unique", "rejects"),
    [*((unique, "refuse") for unique in UNIQUE), ("index", "dead_letter"), ("deferred", "dead_letter")],
)
def test_values_change_places(session: SparkSession | None, pg: Pg, unique: str, rejects: Rejects) -> None:
    table = mailboxes(session)
    with filled(pg, table, UNIQUE[unique], modes=Modes(rejects=rejects)) as sink:
        for version, (edits, after) in enumerate(CHANGES.values(), start=1):
            pg.query("truncate target")
            for one in START.items():
                pg.query("insert into target values (%s, %s)", *one)
            applied = sink.apply(table.window(version + 1, edits))
            assert (mails(pg), applied.conflicts, applied.rejected) == (after, Conflicts(), 0)
    assert pg.query("select relname from pg_class where relname ~ '^aside'") == []


@ON_BOTH_PATHS
def test_both_paths_and_conflicts_counted_alike(session: SparkSession | None, pg: Pg, path: dict[str, int]) -> None:
    table = mailboxes(session)
    edits = [
        *moved(r1="xanadu-b", r2="xanadu-a"),
        insert(row(3, "met")),
        update(row(8, "?"), row(8, "none")),
        delete(row(7, "?")),
    ]
    with filled(pg, table, UNIQUE["index"], conflicts="report", **path) as sink:
        applied = sink.apply(table.window(2, edits))
        assert applied.conflicts == Conflicts(insert_met_row=1, update_met_none=1, delete_met_none=1)
        assert mails(pg) == {**START, 1: "xanadu-b", 2: "xanadu-a", 3: "met", 8: "none"}


def test_further_columns_of_the_target_keep_their_values(session: SparkSession | None, pg: Pg) -> None:
    table = mailboxes(session)
    pg.query(
        "create table target (note text default 'none', number bigint generated always as identity, id bigint primary key, "
        "mail text unique, shout text generated always as (upper(mail)) stored, at timestamptz default now())"
    )
    with filled(pg, table) as sink:
        pg.query("update target set note = 'kept ' || id, at = '2020-01-01'")
        before = dict(pg.query("select id, number from target"))
        sink.apply(table.window(2, [*moved(r1="xanadu-b", r2="xanadu-a"), insert(row(9, "n"))]))
        found = pg.query(
            "select id, mail, note, number, shout, at < '2021-01-01' from target where id in (1, 2, 9) order by id"
        )
    assert found[:2] == [
        (1, "xanadu-b", "kept 1", before[1], "XANADU-B", True),
        (2, "xanadu-a", "kept 2", before[2], "XANADU-A", True),
    ]
    assert found[2][:3] == (9, "n", "none")
    assert found[2][3] not in before.values()


def test_a_partitioned_target(session: SparkSession | None, pg: Pg) -> None:
    table = mailboxes(session)
    pg.query("create table target (id bigint primary key, mail text, note text default 'd') partition by range (id)")
    pg.query("create table low partition of target for values from (0) to (3)")
    pg.query("create table high partition of target for values from (3) to (100)")
    for part in ("low", "high"):
        pg.query(f"create unique index on {part} (mail)")
    with filled(pg, table) as sink:
        pg.query("update target set note = 'kept'")
        edits = [*moved(r1="xanadu-b", r2="xanadu-a", r3="xanadu-e", r5="xanadu-c"), insert(row(9, "n"))]
        assert sink.apply(table.window(2, edits)).conflicts == Conflicts()
        assert mails(pg) == {1: "xanadu-b", 2: "xanadu-a", 3: "xanadu-e", 5: "xanadu-c", 4: None, 9: "n"}
        assert pg.query("select count(*) from target where note = 'kept'") == [(5,)]


def test_triggers_of_the_target_see_it(session: SparkSession | None, pg: Pg) -> None:
    table = mailboxes(session)
    seen = (
        "create table seen (what text, id bigint)",
        "create function see() returns trigger language plpgsql as $$ begin "
        "insert into {schema}.seen values (tg_op, coalesce(new.id, old.id)); return null; end $$",
        "create trigger see after insert or update or delete on target for each row execute function see()",
    )
    with filled(pg, table, UNIQUE["index"], *seen) as sink:
        sink.apply(table.window(2, moved(r1="xanadu-b", r2="xanadu-a")))
        assert mails(pg) == {**START, 1: "xanadu-b", 2: "xanadu-a"}
    # What was rolled back on the way is not among it
    assert sorted(pg.query("select * from seen")) == [("DELETE", 1), ("DELETE", 2), ("INSERT", 1), ("INSERT", 2)]


# ── a row that stays ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("unique", ["index", "deferrable", "exclusion"])
def test_a_clash_with_a_row_that_stays_is_refused(session: SparkSession | None, pg: Pg, unique: str) -> None:
    table = mailboxes(session)
    with filled(pg, table, UNIQUE[unique]) as sink:
        window = table.window(2, [insert(row(9, "xanadu-c")), *moved(r1="xanadu-b", r2="xanadu-a")])
        with pytest.raises(RowRejected, match="one_mail") as found:
            sink.apply(window)
        assert "xanadu" not in tells(found.value)
        assert (mails(pg), position(pg)) == (START, 1)


@pytest.mark.parametrize("unique", UNIQUE)
def test_it_alone_is_set_aside_of_those_that_change_places(session: SparkSession | None, pg: Pg, unique: str) -> None:
    table = mailboxes(session)
    with filled(pg, table, UNIQUE[unique], modes=ASIDE) as sink:
        edits = [
            insert(row(9, "xanadu-e")),
            *moved(r1="xanadu-b", r2="xanadu-c", r3="xanadu-a"),
            insert(row(10, "n")),
        ]
        applied = sink.apply(table.window(2, edits))
        assert mails(pg) == {**START, 1: "xanadu-b", 2: "xanadu-c", 3: "xanadu-a", 10: "n"}
        assert (applied.rejected, applied.conflicts) == (1, Conflicts())
        (letter,) = sink.dead_letters()
        assert (letter.key, letter.constraint) == ('{"id" : "9"}', "one_mail")


def test_other_faults_among_those_that_change_places(session: SparkSession | None, pg: Pg) -> None:
    """Each that is refused keeps its former row, which may stand in the way of the next one."""
    table = mailboxes(session)
    with filled(pg, table, UNIQUE["index"], modes=ASIDE) as sink:
        pg.query("alter table target add check (mail <> 'no')")
        edits = [
            *moved(r1="no", r2="xanadu-a", r3="xanadu-b", r5="xanadu-f"),
            insert(row(9, "no")),
            insert(row(8, "xanadu-e")),
        ]
        applied = sink.apply(table.window(2, edits))
        # 1 stays, so 2 cannot have its value, so 3 cannot have that of 2
        assert mails(pg) == {**START, 5: "xanadu-f", 8: "xanadu-e"}
        assert (applied.rejected, applied.conflicts) == (4, Conflicts())
        assert {one.key for one in sink.dead_letters()} == {f'{{"id" : "{number}"}}' for number in (1, 2, 3, 9)}
        # Once the first of them is good the others of a replay are too
        later = sink.apply(
            table.window(3, [update(row(1, "no"), row(1, "free")), update(row(2, "?"), row(2, "xanadu-a"))])
        )
        assert (later.rejected, later.conflicts) == (0, Conflicts())
        assert mails(pg) == {**START, 1: "free", 2: "xanadu-a", 5: "xanadu-f", 8: "xanadu-e"}


def test_many_that_change_places_and_one_that_cannot(session: SparkSession | None, pg: Pg) -> None:
    """More of them than may be set aside."""
    table = mailboxes(session)
    start = [row(number, f"m{number}") for number in range(1000)]
    with loaded(pg, table, start, modes=Modes(rejects="dead_letter", reject_limit=5)) as sink:
        pg.query(UNIQUE["index"])
        edits = [update(one, row(number, f"m{(number + 500) % 998}")) for number, one in enumerate(start[:998])]
        applied = sink.apply(table.window(2, [*edits, insert(row(2000, "m999"))]))
        assert (applied.rejected, applied.conflicts) == (1, Conflicts())
        assert mails(pg) == {n: f"m{(n + 500) % 998}" for n in range(998)} | {998: "m998", 999: "m999"}


# ── foreign keys ─────────────────────────────────────────────────────────────────────────────────────────────────────


def staff(session: SparkSession | None) -> SampleTable:
    return SampleTable(session, StructType().add("id", "long").add("boss", "long"), ("id",))


def member(number: int, boss: int | None) -> Row:
    return {"id": number, "boss": boss}


TREE = {1: None, 2: 1, 3: 2}
TREE_CHANGES: dict[str, tuple[list[Edit], dict[int, int | None]]] = {
    "a child before its parent": ([insert(member(5, 9)), insert(member(9, 1))], {**TREE, 5: 9, 9: 1}),
    "an update to a new parent": (
        [update(member(2, 1), member(2, 9)), insert(member(9, None))],
        {**TREE, 2: 9, 9: None},
    ),
    "a parent that goes": (
        [delete(member(1, None)), update(member(2, 1), member(2, None))],
        {2: None, 3: 2},
    ),
    "a parent that goes, for a new one": (
        [delete(member(2, 1)), update(member(3, 2), member(3, 9)), insert(member(9, 1))],
        {1: None, 3: 9, 9: 1},
    ),
    "all of it": ([delete(member(n, boss)) for n, boss in TREE.items()], {}),
    "into a circle": ([update(member(1, None), member(1, 3))], {**TREE, 1: 3}),
}


@pytest.mark.parametrize("rejects", ["refuse", "dead_letter"])
@pytest.mark.parametrize("deferrable", ["", "deferrable initially immediate"], ids=["immediate", "deferrable"])
@pytest.mark.parametrize("case", TREE_CHANGES)
def test_rows_that_point_at_each_other_in_any_order(
    session: SparkSession | None, pg: Pg, case: str, deferrable: str, rejects: Rejects
) -> None:
    table = staff(session)
    pg.query(f"create table target (id bigint primary key, boss bigint references target {deferrable})")
    edits, after = TREE_CHANGES[case]
    with loaded(pg, table, [member(*one) for one in TREE.items()], modes=Modes(rejects=rejects)) as sink:
        applied = sink.apply(table.window(2, edits))
        assert applied.conflicts == Conflicts()
    assert dict(pg.query("select id, boss from target")) == after


@pytest.mark.parametrize("rejects", ["refuse", "dead_letter"])
def test_a_child_ahead_of_its_parent_in_another_table(session: SparkSession | None, pg: Pg, rejects: Rejects) -> None:
    table = staff(session)
    pg.query("create table people (id bigint primary key)")
    pg.query("create table target (id bigint primary key, boss bigint constraint has_boss references people)")
    with loaded(pg, table, [], modes=Modes(rejects=rejects)) as sink:
        window = table.window(2, [insert(member(1, 4711)), insert(member(2, None))])
        with pytest.raises(RowRejected, match="has_boss") as found:
            sink.apply(window)
        assert "4711" not in tells(found.value)
        assert found.value.hint is not None
        assert "first update the table at the other end" in found.value.hint
        assert (position(pg), pg.query("select count(*) from target")) == (1, [(0,)])
        pg.query("insert into people values (4711)")
        sink.apply(window)
    assert dict(pg.query("select id, boss from target")) == {1: 4711, 2: None}


@pytest.mark.parametrize("action", ["no action", "restrict"])
@pytest.mark.parametrize("rejects", ["refuse", "dead_letter"])
def test_a_parent_is_not_deleted_under_its_children(
    session: SparkSession | None, pg: Pg, rejects: Rejects, action: str
) -> None:
    table = mailboxes(session)
    with filled(pg, table, modes=Modes(rejects=rejects)) as sink:
        pg.query(f"create table child (id bigint, of bigint constraint of_whom references target on delete {action})")
        pg.query("insert into child values (1, 2)")
        window = table.window(2, [delete(row(2, "xanadu-b"))])
        with pytest.raises(RowRejected, match="of_whom") as found:
            sink.apply(window)
        assert "xanadu" not in tells(found.value)
        assert (mails(pg), position(pg)) == (START, 1)
        pg.query("delete from child")
        assert sink.apply(window).conflicts == Conflicts()


@pytest.mark.parametrize("action", ["cascade", "set null", "set default", "restrict", "no action"])
@pytest.mark.parametrize("rejects", ["refuse", "dead_letter"])
def test_changing_places_does_not_reach_into_another_table(
    session: SparkSession | None, pg: Pg, rejects: Rejects, action: str
) -> None:
    table = mailboxes(session)
    with filled(pg, table, UNIQUE["index"], modes=Modes(rejects=rejects)) as sink:
        pg.query(f"create table child (id bigint, of bigint references target on delete {action})")
        pg.query("insert into child values (1, 2)")
        window = table.window(2, moved(r1="xanadu-b", r2="xanadu-a"))
        if rejects == "refuse" or action in ("restrict", "no action"):
            with pytest.raises(RowRejected, match=r"one_mail|swap values") as found:
                sink.apply(window)
            assert "xanadu" not in tells(found.value)
            assert found.value.hint is not None
            assert "DEFERRABLE" in found.value.hint
            assert position(pg) == 1
        else:
            assert sink.apply(window).rejected == 2
        assert mails(pg) == START
        assert pg.query("select * from child") == [(1, 2)]


@pytest.mark.parametrize("action", ["cascade", "set null", "no action"])
def test_the_way_out_is_a_deferrable_constraint(session: SparkSession | None, pg: Pg, action: str) -> None:
    table = mailboxes(session)
    with filled(pg, table, UNIQUE["deferrable"]) as sink:
        pg.query(f"create table child (id bigint, of bigint references target on delete {action})")
        pg.query("insert into child values (1, 2)")
        sink.apply(table.window(2, moved(r1="xanadu-b", r2="xanadu-a")))
        assert mails(pg) == {**START, 1: "xanadu-b", 2: "xanadu-a"}
        assert pg.query("select * from child") == [(1, 2)]


# ── reload by merging ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("unique", UNIQUE)
def test_a_reload_that_merges(session: SparkSession | None, pg: Pg, unique: str) -> None:
    table = mailboxes(session)
    pg.query("create table target (id bigint primary key, mail text, note text default 'none')")
    after = {1: "xanadu-b", 2: "xanadu-c", 3: "xanadu-a", 4: None, 6: "xanadu-e"}
    with filled(pg, table, UNIQUE[unique]) as sink:
        pg.query("update target set note = 'kept ' || id")
        before = dict(pg.query("select id, xmin::text from target"))
        pg.query("create view seen as select id from target")  # it has to stay: so the reload merges
    with opened_to_reload(pg, table) as sink:
        applied = sink.reload(table.snapshot(7, [row(*one) for one in after.items()]))
        assert "merge" in applied.seconds
    assert (mails(pg), position(pg)) == (after, 7)
    notes = dict(pg.query("select id, note from target"))
    assert notes == {1: "kept 1", 2: "kept 2", 3: "kept 3", 4: "kept 4", 6: "none"}
    # What does not differ is not written
    assert dict(pg.query("select id, xmin::text from target"))[4] == before[4]


def test_a_reload_does_not_reach_into_another_table(session: SparkSession | None, pg: Pg) -> None:
    table = mailboxes(session)
    with filled(pg, table, UNIQUE["index"]):
        pg.query("create table child (id bigint, of bigint references target on delete cascade)")
        pg.query("insert into child values (1, 2)")
    after = {**START, 1: "xanadu-b", 2: "xanadu-a"}
    with opened_to_reload(pg, table) as sink:
        with pytest.raises(RowRejected, match="one_mail") as found:
            sink.reload(table.snapshot(7, [row(*one) for one in after.items()]))
        assert "xanadu" not in tells(found.value)
    assert (mails(pg), pg.query("select * from child")) == (START, [(1, 2)])


@contextmanager
def opened_to_reload(pg: Pg, table: SampleTable) -> Iterator[PostgresSink]:
    sink = sink_of(pg)
    try:
        sink.open_to_reload(table.source())
        yield sink
    finally:
        sink.close()
