"""The tables with personal data: checked as a whole, and in the order in which links between them are followed."""

from __future__ import annotations

import datetime as dt
import difflib
import graphlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from audit.erasure.model import IDENTITY, EncryptedColumns, Hold, Link, PersonalTable, Subject
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from audit.encryption.column_groups import PersonColumns

__all__ = ["Fault", "Graph", "parse_path"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake, and its place in the ``erasure`` block: ``("tables", "/data/orders", "path")``."""

    place: tuple[str | int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Subjects, their tables and holds. ``Graph.of`` checks them."""

    subjects: Mapping[str, Subject]
    order: tuple[PersonalTable, ...]
    """A table comes after the one that its link leads to."""
    holds: tuple[Hold, ...] = ()

    @classmethod
    def of(cls, subjects: Mapping[str, Subject], tables: Sequence[PersonalTable], holds: Sequence[Hold] = ()) -> Graph:
        """Raises ConfigError with all faults: ``problems`` has their places and messages."""
        faults = [
            *_of_subjects(subjects),
            *(fault for table in tables for fault in _of_table(table, subjects, tables)),
            *_of_addresses(tables),
            *_of_cycles(tables),
        ]
        tables = [_with_identity(table, subjects) for table in tables]
        faults += _of_holds(holds, tables, subjects)
        if faults:
            lines = [f"{'.'.join(map(str, fault.place))}: {fault.message}" for fault in faults]
            raise ConfigError(
                "\n".join(["the tables of an erasure do not fit together", *lines]) if len(lines) > 1 else lines[0],
                problems=[{"place": list(fault.place), "message": fault.message} for fault in faults],
            )
        by_name = {table.table: table for table in tables}
        sorter = graphlib.TopologicalSorter(
            {table.table: [table.path.table] if isinstance(table.path, Link) else [] for table in tables}
        )
        return cls(dict(subjects), tuple(by_name[name] for name in sorter.static_order()), tuple(holds))

    def tables_of(self, *subjects: str) -> tuple[PersonalTable, ...]:
        """Return the tables whose rows name such people, in ``order``, without what they say about others."""
        return tuple(found for table in self.order if (found := table.of(subjects)) is not None)

    def table(self, name: str) -> PersonalTable | None:
        return next((table for table in self.order if table.table == name), None)

    def holding(self, table: str) -> dict[tuple[str, str], set[str]]:
        """Return the columns of a table that hold an identifier, by subject and identifier."""
        columns: dict[tuple[str, str], set[str]] = {}
        one = self.table(table)
        for person in one.people if one is not None else ():
            link = person.path if isinstance(person.path, Link) else None
            for name in self.subjects[person.subject].identifiers:
                if link is None or link.other.lower() == name.lower():
                    columns.setdefault((person.subject, name), set()).add(name if link is None else link.column)
        return columns

    def encrypted_people(self, table: str) -> tuple[PersonColumns, ...]:
        """The people whom the rows of a table name and whose columns are encrypted in its trail."""
        from audit.encryption.column_groups import PersonColumns

        one, found = self.table(table), []
        for person in one.people if one is not None else ():
            if person.classes and (identifier := _identifier(person, self.subjects)) is not None:
                spelling = self.subjects[person.subject].identifiers[identifier]
                found.append(PersonColumns(person.subject, identifier, person.column, spelling, person.classes))
        return tuple(found)

    def held(self, table: str, today: dt.date) -> tuple[Hold, ...]:
        """Return the holds in force on the table. On the day ``until`` itself its rows may be erased."""
        return tuple(hold for hold in self.holds if hold.table == table and today < hold.until)

    def held_classes(self, today: dt.date) -> dict[str, Hold]:
        """Return the longest hold in force on each class."""
        holds = sorted((hold for hold in self.holds if today < hold.until), key=lambda hold: hold.until)
        return {hold.class_name: hold for hold in holds if hold.class_name is not None}

    def about(self, *people: PersonalTable) -> frozenset[str]:
        """Return, in lower case, the columns that identify these people, and those that are configured as about them."""
        columns = (
            column
            for one in people
            for column in (
                *_identifying(one, self.subjects),
                *one.personal,
                *(column for _, named in one.classes for column in named),
            )
        )
        return frozenset(column.casefold() for column in columns)

    def encrypted_columns_of(
        self, person: PersonalTable, others: Sequence[PersonalTable], tokens: frozenset[bytes]
    ) -> EncryptedColumns:
        """Return the encrypted columns of the people with these tokens, where a row names them as this ``person``."""
        columns = self.about(person)
        return EncryptedColumns(tokens, columns, self.about(*others) - columns)


def parse_path(text: str) -> str | Link:
    """Parse ``customer_id``, or ``customer_id -> /data/customers.customer_id``: the last dot is before the column.

    Raises ValueError for anything else.
    """
    column, arrow, target = (part.strip() for part in text.partition("->"))
    if not arrow:
        if not column:
            raise ValueError("is empty; name a column")
        return column
    table, dot, other = (part.strip() for part in target.rpartition("."))
    if not (column and dot and table and other) or "/" in other or "->" in target:
        raise ValueError("must be a column, or `column -> table.column`")
    return Link(column, table, other)


def _of_subjects(subjects: Mapping[str, Subject]) -> Iterator[Fault]:
    for name, subject in subjects.items():
        if not subject.identifiers:
            yield Fault(("subjects", name, "identifiers"), "names no identifier, so no person could be found")


def _of_table(
    table: PersonalTable, subjects: Mapping[str, Subject], tables: Sequence[PersonalTable]
) -> Iterator[Fault]:
    place: tuple[str | int, ...] = ("tables", table.table)
    yield from _of_person(table, place, subjects, tables)
    for at, other in enumerate(table.others):
        yield from _of_person(other, (*place, "others", at), subjects, tables)
        for one in table.people[: at + 1]:
            if both := sorted(_identifying(one, subjects) & _identifying(other, subjects)):
                yield Fault((*place, "others", at, "path"), f"has `{both[0]}`, which identifies another person")
    yield from _of_classes(table, subjects)
    for one in table.people:
        identifying = _identifying_others(one, table, subjects)
        if one.on_erase == "nullify" and (both := sorted(identifying & {name.lower() for name in one.personal})):
            at = table.people.index(one)
            where = (*place, "personal") if at == 0 else (*place, "others", at - 1, "personal")
            yield Fault(where, f"has `{both[0]}`, which identifies another person of the row")


def _of_classes(table: PersonalTable, subjects: Mapping[str, Subject]) -> Iterator[Fault]:
    """Each column is encrypted once, under the key of a person whom the row itself identifies."""
    taken: dict[str, str] = {}
    for at, one in enumerate(table.people):
        identifying = _identifying_others(one, table, subjects)
        place: tuple[str | int, ...] = ("tables", table.table, *(() if at == 0 else ("others", at - 1)), "classes")
        for class_name, columns in one.classes:
            for column in columns:
                if (before := taken.get(column.lower())) is not None:
                    yield Fault((*place, class_name), f"has `{column}`, which is in the class `{before}` already")
                if column.lower() in identifying:
                    yield Fault((*place, class_name), f"has `{column}`, which identifies another person of the row")
                taken[column.lower()] = class_name
        if one.classes and one.subject in subjects and _identifier(one, subjects) is None:
            message = f"needs a row that identifies the person: `{one.column}` holds no identifier of the subject"
            yield Fault(place, f"{message} `{one.subject}`")


def _with_identity(table: PersonalTable, subjects: Mapping[str, Subject]) -> PersonalTable:
    """Add the identifying columns to the class ``IDENTITY`` where a table has classes and they are in none: they must be
    encrypted as well."""
    taken = {column.lower() for one in table.people for _, columns in one.classes for column in columns}

    def of(one: PersonalTable) -> PersonalTable:
        subject = subjects.get(one.subject)
        identifying = (one.column, *(subject.identifiers if subject and not isinstance(one.path, Link) else ()))
        rest: dict[str, str] = {}
        for column in identifying:
            if column.lower() not in taken:
                rest.setdefault(column.lower(), column)
        if not one.classes or not rest:
            return one
        classes = dict(one.classes)
        classes[IDENTITY] = (*classes.get(IDENTITY, ()), *rest.values())
        return replace(one, classes=tuple(classes.items()))

    first, *others = map(of, table.people)
    return replace(first, others=tuple(others))


def _identifier(one: PersonalTable, subjects: Mapping[str, Subject]) -> str | None:
    """Return the identifier that the column of a person holds; None where only rows of another table identify the person."""
    wanted = one.path.other if isinstance(one.path, Link) else one.path
    return next((name for name in subjects[one.subject].identifiers if name.lower() == wanted.lower()), None)


def _identifying(one: PersonalTable, subjects: Mapping[str, Subject]) -> set[str]:
    """Return the columns that identify the person, in lower case: a table with identifiers may have any of them."""
    if isinstance(one.path, Link):
        return {one.path.column.lower()}
    subject = subjects.get(one.subject)
    return {name.lower() for name in (one.path, *(subject.identifiers if subject else ()))}


def _identifying_others(one: PersonalTable, table: PersonalTable, subjects: Mapping[str, Subject]) -> set[str]:
    """Return the columns that identify the other people in the table's rows."""
    return {column for other in table.people if other is not one for column in _identifying(other, subjects)}


def _of_person(
    table: PersonalTable,
    place: tuple[str | int, ...],
    subjects: Mapping[str, Subject],
    tables: Sequence[PersonalTable],
) -> Iterator[Fault]:
    subject = subjects.get(table.subject)
    if subject is None:
        message = "is not an entry under `subjects`" + _near(table.subject, subjects)
        yield Fault((*place, "subject"), message)
    if isinstance(table.path, Link):
        leads = [one for one in tables if one.table == table.path.table]
        if not leads:
            message = f"leads to {table.path.table}, which is not an entry under `tables`"
            yield Fault((*place, "path"), message + _near(table.path.table, [one.table for one in tables]))
        elif leads[0].subject != table.subject and {leads[0].subject, table.subject} <= set(subjects):
            message = f"leads to {table.path.table}, which holds rows of another subject"
            yield Fault((*place, "path"), message)
    elif subject is not None and table.path not in subject.identifiers:
        message = f"the column `{table.path}` is not an identifier of the subject `{subject.name}`"
        yield Fault((*place, "path"), message + _near(table.path, subject.identifiers))
    if table.on_erase == "nullify" and not table.personal:
        yield Fault((*place, "on_erase"), "`nullify` empties the columns of `personal`, and none is named")
    elif table.on_erase == "nullify" and table.column.lower() not in [name.lower() for name in table.personal]:
        yield Fault((*place, "personal"), f"lacks `{table.column}`, which would still identify the person of the row")


def _of_addresses(tables: Sequence[PersonalTable]) -> Iterator[Fault]:
    names = [table.table for table in tables]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield Fault(("tables", name), "occurs twice")


def _of_cycles(tables: Sequence[PersonalTable]) -> Iterator[Fault]:
    """Each table has one link at most, so every cycle is found by following links, and reported once."""
    leads = {table.table: table.path.table for table in tables if isinstance(table.path, Link)}
    done: set[str] = set()
    for start in leads:
        followed: list[str] = []
        at: str | None = start
        while at is not None and at not in followed and at not in done:
            followed.append(at)
            at = leads.get(at)
        if at in followed:
            cycle = followed[followed.index(at) :]
            path = " -> ".join([*cycle, cycle[0]])
            yield Fault(("tables", cycle[0], "path"), f"is a cycle of links: {path}")
        done.update(followed)


def _of_holds(
    holds: Sequence[Hold], tables: Sequence[PersonalTable], subjects: Mapping[str, Subject]
) -> Iterator[Fault]:
    known = [table.table for table in tables]
    by_name = {table.table: table for table in tables}
    for index, hold in enumerate(holds):
        if (hold.table is None) == (hold.class_name is None):
            yield Fault(("holds", index), "must name either a table or a class")
        elif hold.class_name is not None:
            yield from _of_held_class(("holds", index, "class"), hold.class_name, tables)
        elif hold.table not in known:
            yield Fault(("holds", index, "table"), "is not an entry under `tables`" + _near(str(hold.table), known))
        if not hold.basis.strip():
            yield Fault(("holds", index, "basis"), "is empty; state the legal basis of the hold")
        held = by_name.get(hold.table or "")
        yield from _of_held_history(index, hold, held, holds)
        for one in held.people if held is not None else ():
            if not isinstance(one.path, Link) or (above := by_name.get(one.path.table)) is None:
                continue
            subject = subjects.get(one.subject)
            if subject is None or (not isinstance(above.path, Link) and subject.has(one.path.other)):
                continue  # the identifier is known without the rows that it leads to
            if not any(other.table == above.table and other.until >= hold.until for other in holds):
                message = (
                    f"is found only through {above.table}: hold that table for as long, otherwise these rows can no longer "
                    "be found"
                )
                yield Fault(("holds", index, "table"), message)


def _of_held_class(place: tuple[str | int, ...], held: str, tables: Sequence[PersonalTable]) -> Iterator[Fault]:
    """Encrypted values are erased with their row where the row has personal data in plain text."""
    named = {table.table: {name for one in table.people for name, _ in one.classes} for table in tables}
    known = {name for names in named.values() for name in names}
    if held not in known:
        yield Fault(place, "is not a class of any table" + _near(held, sorted(known)))
    for table in tables:
        sealed = {column.lower() for one in table.people for _, columns in one.classes for column in columns}
        columns = dict.fromkeys(name for one in table.people for name in (one.column, *one.personal))
        plain = [f"`{name}`" for name in columns if name.lower() not in sealed]
        if held in named[table.table] and plain:
            message = (
                f"cannot be retained in trails of {table.table}, whose whole rows are erased; columns in plain text:"
            )
            yield Fault(place, f"{message} {', '.join(plain)}; put them into one of the classes")


def _of_held_history(index: int, hold: Hold, held: PersonalTable | None, holds: Sequence[Hold]) -> Iterator[Fault]:
    """A key is destroyed for all tables: the history of a table under a hold would become unreadable with it."""
    classes = {name for one in held.people for name, _ in one.classes} if held is not None else set()
    kept = {one.class_name for one in holds if one.until >= hold.until}
    if gone := sorted(classes - kept):
        message = f"has columns that trails encrypt: hold the classes {', '.join(gone)} as long, or its history"
        yield Fault(("holds", index, "table"), f"{message} can no longer be read")


def _near(word: str, known: Mapping[str, object] | Sequence[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
