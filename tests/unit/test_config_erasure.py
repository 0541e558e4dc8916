"""The ``erasure`` block: mistakes where they stand, addresses as those of pipelines, and the key in no output."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path

import pytest

from audit.encryption.column_groups import PersonColumns
from audit.encryption.root_keys import FileRoot
from audit.erasure.model import Link, Subject
from audit.erasure.register.secrets import SealKey, WatchKey
from audit.signing.signer import Signer
from cdf.errors import ConfigError
from infra.config.load import load
from infra.config.models import Project, describe

KEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
BASE = """\
version: 1
connections:
  w: {kind: postgres, dsn: "postgresql://h/db"}
  trail: {kind: delta_audit, path: /data/trail}
pipelines: {p: {source: {table: ./lake/orders, key: [id]}, sink: {connection: w, table: t}}}
"""
BLOCK = """\
erasure:
  state: {connection: w, schema: gdpr}
  signing_key: "${file:erasure.key}"
  subjects: {customer: {identifiers: {email: email, customer_id: exact}}}
  tables:
    ./lake/customers: {subject: customer, identified_by: customer_id, personal: [email, name]}
    ./lake/orders/: {subject: customer, identified_by: "customer -> lake/customers.customer_id", on_erase: delete}
    s3://bucket/t: {subject: customer, identified_by: email, personal: [email], on_erase: nullify}
  holds: [{table: lake/orders, until: 2031-12-31, basis: "tax law"}]
  approve_above: 500
  out_of_reach: ["nightly backups, gone after 35 days"]
"""


def loaded(folder: Path, block: str, base: str = BASE) -> Project:
    (folder / "erasure.key").write_text(KEY + "\n")
    (folder / "erasure.key").chmod(0o600)
    file = folder / "d.yaml"
    file.write_text(base + block)
    return load(file)


def refused(folder: Path, old: str, new: str) -> list[str]:
    assert old in BLOCK
    with pytest.raises(ConfigError) as caught:
        loaded(folder, BLOCK.replace(old, new))
    assert KEY[-20:] not in str(caught.value.to_dict())
    return [f"{one['path']} {one['message']}" for one in caught.value.fields["errors"]]


def test_the_whole_block(tmp_path: Path) -> None:
    erasure = loaded(tmp_path, BLOCK).erasure
    assert erasure is not None
    assert (erasure.state.connection, erasure.state.schema_name, erasure.approve_above) == ("w", "gdpr", 500)
    assert erasure.out_of_reach == ("nightly backups, gone after 35 days",)
    graph = erasure.graph()
    customers, orders = f"{tmp_path}/lake/customers", f"{tmp_path}/lake/orders"
    assert graph.subjects == {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
    by_name = {one.table: one for one in graph.tables_of("customer")}
    assert set(by_name) == {customers, orders, "s3a://bucket/t"}
    assert by_name[orders].path == Link("customer", customers, "customer_id")
    assert [one.table for one in graph.order].index(customers) < [one.table for one in graph.order].index(orders)
    assert by_name[customers].personal == ("email", "name")
    assert by_name["s3a://bucket/t"].on_erase == "nullify"
    assert [one.until for one in graph.held(orders, dt.date(2026, 1, 1))] == [dt.date(2031, 12, 31)]
    assert erasure.keys().mark("a", "b") == erasure.keys().mark("a", "b")
    assert erasure.signer() == Signer.parse(KEY)


def test_classes_of_columns(tmp_path: Path) -> None:
    FileRoot.generate().write(tmp_path / "root.key")
    keys = '  keys: {connection: k, root_key: "${file:root.key}"}\n  approve_above'
    block = BLOCK.replace("  approve_above", keys).replace(
        "identified_by: customer_id,", "identified_by: customer_id, classes: {contact: [email, name], billing: [iban]},"
    )
    orders = """on_erase: delete, classes: {contact: [customer, address]}, other_subjects: [
      {identified_by: "to -> lake/customers.customer_id", personal: [to], classes: {contact: [to, to_name]}}]}"""
    block = block.replace("on_erase: delete}", orders)
    # The history of a table that is held needs its keys
    holds = "holds: [{class: contact, until: 2031-12-31, basis: tax}, "
    block = block.replace("holds: [", holds)
    other = '  k: {kind: postgres, dsn: "postgresql://h/keys"}\n  trail:'
    project = loaded(tmp_path, block, BASE.replace("  trail:", other))
    assert project.spark_settings()["spark.io.encryption.enabled"] == "true"
    own = loaded(
        tmp_path, f"{block}spark: {{conf: {{spark.io.encryption.enabled: 'false'}}}}\n", BASE.replace("  trail:", other)
    )
    assert own.spark_settings()["spark.io.encryption.enabled"] == "false"
    assert loaded(tmp_path, BLOCK).spark_settings() == {}
    assert project.erasure is not None
    graph = project.erasure.graph()
    contact = ("contact", ("email", "name"))
    assert graph.encrypted_people(f"{tmp_path}/lake/customers") == (
        # What tells whose a row is is sealed as well, in a class of its own where it is in none
        PersonColumns(
            "customer",
            "customer_id",
            "customer_id",
            "exact",
            (contact, ("billing", ("iban",)), ("identity", ("customer_id",))),
        ),
    )
    assert graph.encrypted_people(f"{tmp_path}/lake/orders") == (
        PersonColumns("customer", "customer_id", "customer", "exact", (("contact", ("customer", "address")),)),
        PersonColumns("customer", "customer_id", "to", "exact", (("contact", ("to", "to_name")),)),
    )
    assert graph.encrypted_people("s3a://bucket/t") == ()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "identified_by: customer_id,",
            "identified_by: customer_id, classes: {contact: [email]},",
            "erasure.tables../lake/customers.classes needs `erasure.keys`, the registry of the keys",
        ),
        (
            "identified_by: customer_id,",
            "identified_by: customer_id, classes: {contact: [email, name], more: [Name]},",
            "classes.more has `Name`, which is in the class `contact` already",
        ),
        (
            'customer -> lake/customers.customer_id", on_erase: delete',
            'customer -> lake/customers.code", classes: {contact: [address]}',
            "lake/orders/.classes needs a row that identifies the person: `customer` holds no identifier",
        ),
        ("identified_by: customer_id,", "identified_by: customer_id, classes: {contact: []},", "classes.contact "),
        (
            "identified_by: customer_id,",
            """identified_by: customer_id, classes: {contact: [email, friend]},
      other_subjects: [{identified_by: "friend -> lake/customers.customer_id", personal: [friend]}],""",
            "classes.contact has `friend`, which identifies another person of the row",
        ),
        (
            "holds: [",
            "holds: [{class: contact, until: 2031-12-31, basis: b}, ",
            "holds[0].class is not a class of any table",
        ),
    ],
)
def test_what_is_wrong_with_classes(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert len([one for one in refused(tmp_path, old, new) if told in one]) == 1


def test_several_people_in_a_row(tmp_path: Path) -> None:
    others = """\
on_erase: delete, other_subjects: [
      {identified_by: "to -> lake/customers.customer_id", personal: [to]},
      {subject: clerk, identified_by: no, on_erase: delete}]}"""
    block = BLOCK.replace("on_erase: delete}", others).replace(
        "exact}}}", "exact}}, clerk: {identifiers: {no: exact}}}"
    )
    erasure = loaded(tmp_path, block).erasure
    assert erasure is not None
    orders = erasure.graph().table(f"{tmp_path}/lake/orders")
    assert orders is not None
    to, clerk = orders.others
    assert (to.table, to.subject, to.personal, to.on_erase) == (orders.table, "customer", ("to",), "nullify")
    assert to.path == Link("to", f"{tmp_path}/lake/customers", "customer_id")
    assert (clerk.subject, clerk.path, clerk.on_erase) == ("clerk", "no", "delete")


def test_the_addresses_are_those_of_the_pipelines(tmp_path: Path) -> None:
    project = loaded(tmp_path, BLOCK)
    assert project.erasure is not None
    assert project.pipelines["p"].source.table in project.erasure.tables


def test_the_block_may_be_left_out(tmp_path: Path) -> None:
    project = loaded(tmp_path, "")
    assert project.erasure is None
    assert "erasure" not in describe(project)


def test_what_is_shown_has_no_key(tmp_path: Path) -> None:
    project = loaded(tmp_path, BLOCK)
    shown = describe(project)["erasure"]
    assert shown["signing_key"] == "***"
    assert shown["state"] == {"connection": "w", "schema": "gdpr", "identity": None}
    assert shown["holds"][0]["until"] == "2031-12-31"
    assert KEY[-20:] not in repr(project)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "connection: w,",
            "connection: ww,",
            "erasure.state.connection is not an entry under `connections`; did you mean `w`?",
        ),
        ("connection: w,", "connection: trail,", "erasure.state.connection must be a connection of kind postgres"),
        ("  state: {connection: w, schema: gdpr}\n", "", "erasure.state is missing"),
        ("schema: gdpr", "schema: ''", "erasure.state.schema must be a name"),
        ("state: {connection", "state: {conection", "erasure.state.conection unknown key; did you mean `connection`?"),
        ('"${file:erasure.key}"', f"{KEY[:-1]}A", "erasure.signing_key is not a signing key"),
        ('"${file:erasure.key}"', '"${file:gone.key}"', "erasure.signing_key the secret file gone.key cannot be read"),
        (
            "email: email",
            "email: mail",
            "erasure.subjects.customer.identifiers.email must be 'exact' or 'email'; did you",
        ),
        (
            "{identifiers: {email: email, customer_id: exact}}",
            "{identifiers: {}}",
            "identifiers needs at least 1 entry",
        ),
        (
            "orders/: {subject: customer",
            "orders/: {subject: custmer",
            "./lake/orders/.subject is not an entry under `subjects`",
        ),
        (
            "identified_by: customer_id",
            "identified_by: id",
            "./lake/customers.identified_by the column `id` is not an identifier of the subject `customer`",
        ),
        ("-> lake/customers.", "-> lake/custmers.", "./lake/orders/.identified_by leads to "),
        (
            '"customer -> lake/customers.customer_id"',
            '"customer -> x"',
            "must be a column, or `column -> table.column`",
        ),
        ("-> lake/customers.customer_id", "-> lake/orders.id", "./lake/orders/.identified_by is a cycle of links: "),
        (
            "personal: [email], on_erase",
            "on_erase",
            "on_erase `nullify` empties the columns of `personal`, and none is",
        ),
        ("on_erase: delete", "on_erase: remove", "./lake/orders/.on_erase must be 'delete' or 'nullify'"),
        (
            "on_erase: delete}",
            'other_subjects: [{identified_by: "to -> lake/customers.customer_id"}]}',
            "./lake/orders/.other_subjects[0].on_erase `nullify` empties the columns of `personal`, and none is named",
        ),
        (
            "on_erase: delete}",
            "other_subjects: [{identified_by: no, on_erase: delete}]}",
            ".other_subjects[0].identified_by the column `no` is not an identifier of the subject",
        ),
        ("personal: [email, name]", "personal: [name, Name]", "./lake/customers.personal lists a column twice"),
        ("s3://bucket/t:", "lake/orders:", "erasure.tables lists one table twice, in two spellings: "),
        (
            "table: lake/orders,",
            "table: lake/ordrs,",
            "erasure.holds[0].table is not an entry under `tables`; did you mean",
        ),
        ("2031-12-31", "31.12.2031", "erasure.holds[0].until must be a date such as 2031-12-31"),
        ("2031-12-31", "2031-02-30", "erasure.holds[0].until must be a date such as 2031-12-31"),
        ("500", "-1", "erasure.approve_above must be 0 or more"),
        ("approve_above", "aprove_above", "erasure.aprove_above unknown key; did you mean `approve_above`?"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, told: str) -> None:
    messages = refused(tmp_path, old, new)
    assert any(told in message for message in messages), messages
    # what is written wrong is missing in its right form
    assert len(messages) == 1 or "conection" in new


@pytest.mark.parametrize("written", ["schema: gdpr, ", ""], ids=["keys beside the state", "the state beside the keys"])
def test_keys_of_persons_are_not_where_the_requests_are(tmp_path: Path, written: str) -> None:
    """Whoever reads the requests, or a backup of them, must not have the keys too."""
    keys = f'  keys: {{connection: v, {written}root_key: "${{file:root.key}}"}}\n  approve_above'
    base = BASE.replace("  trail:", '  v: {kind: postgres, dsn: "postgresql://h/db"}\n  trail:')
    block = BLOCK.replace("  approve_above", keys).replace(
        "schema: gdpr}", "schema: gdpr}" if written else "schema: keys}"
    )
    FileRoot.generate().write(tmp_path / "root.key")
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, block, base)
    path = "erasure.keys.schema" if written else "erasure.keys"
    assert [(one["path"], one["message"][:32]) for one in caught.value.fields["errors"]] == [
        (path, "is the schema of `erasure.state`")
    ]


def test_mistakes_of_the_graph_have_their_own_lines_and_are_told_together(tmp_path: Path) -> None:
    block = BLOCK.replace("identified_by: customer_id", "identified_by: id").replace(
        "table: lake/orders,", "table: lake/ordrs,"
    )
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, block.replace("connection: w,", "connection: nowhere,"))
    lines = (BASE + block).splitlines()
    at = [(lines[one["line"] - 1].split()[0], one["path"]) for one in caught.value.fields["errors"]]
    assert at == [
        ("state:", "erasure.state.connection"),
        ("./lake/customers:", "erasure.tables../lake/customers.identified_by"),
        ("holds:", "erasure.holds[0].table"),
    ]


def test_a_key_that_stands_in_the_file_itself_is_never_quoted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, BLOCK.replace('"${file:erasure.key}"', f"{KEY}, approve: 3").replace("500", "x"))
    assert KEY[-20:] not in str(caught.value.to_dict())


WATCH, SEAL = WatchKey.of(Signer.parse(KEY)), SealKey.of(Signer.parse(KEY))


def test_keys_that_are_kept_apart(tmp_path: Path) -> None:
    """What was marked and sealed under the signing key alone is known and opened after each of the steps of a rotation."""
    WATCH.write(tmp_path / "watch.key")
    SEAL.write(tmp_path / "seal.key")
    fresh_watch, fresh_seal = WatchKey.generate(), SealKey.generate()
    fresh_watch.write(tmp_path / "watch-2.key")
    fresh_seal.write(tmp_path / "seal-2.key")
    before = loaded(tmp_path, BLOCK).erasure
    assert before is not None
    mark, sealed = before.keys().mark("a", "b"), before.keys().encrypt("x", about="y")
    signing, watch, seal = (
        'signing_key: "${file:erasure.key}"',
        'watch_key: "${file:watch.key}"',
        'seal_key: "${file:seal.key}"',
    )
    rotated = (
        'watch_key: "${file:watch-2.key}"\n  former_watch_keys: ["${file:watch.key}"]\n'
        '  seal_key: "${file:seal-2.key}"\n  former_seal_keys: ["${file:seal.key}"]'
    )
    for lines, first in (
        (f"{signing}\n  {watch}\n  {seal}", mark),
        (f"{watch}\n  {seal}", mark),
        (rotated, None),
        (f"{signing}\n  {rotated}", None),
    ):
        erasure = loaded(tmp_path, BLOCK.replace(signing, lines)).erasure
        assert erasure is not None
        assert mark in erasure.marker().marks("a", "b")
        assert first in (None, erasure.marker().mark("a", "b"))
        assert erasure.keys().decrypt(sealed, about="y") == "x"
        assert erasure.keys().decrypt(erasure.keys().encrypt("z", about="y"), about="y") == "z"
    assert erasure.keys().in_use == (fresh_watch, fresh_seal)

    # A machine that runs pipelines knows people again, and can neither sign nor open anything
    runner = loaded(tmp_path, BLOCK.replace(signing, watch)).erasure
    assert runner is not None
    assert runner.marker().mark("a", "b") == mark
    for asked in (runner.signer, runner.keys):
        with pytest.raises(
            ConfigError, match="signs certificates" if asked == runner.signer else "encrypt identifiers"
        ):
            asked()
    shown = str(describe(loaded(tmp_path, BLOCK.replace(signing, rotated))))
    assert not any(one.secret()[-20:] in shown for one in (WATCH, SEAL, fresh_watch, fresh_seal))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("on_return: stop", "needs signing_key or, on a machine that only runs pipelines, watch_key"),
        (f'watch_key: "{KEY}"', "is not a watch key"),
        (f'watch_key: "{SEAL.secret()}"', "is not a watch key"),
        (f'watch_key: "{WATCH.secret()[:-3]}xx="', "is not a watch key"),
        (f'signing_key: "${{file:erasure.key}}"\n  seal_key: "{SEAL.secret()}"', "needs watch_key beside seal_key"),
        (f'watch_key: "{WATCH.secret()}"\n  former_seal_keys: ["{SEAL.secret()}"]', "needs seal_key beside"),
    ],
)
def test_keys_that_do_not_fit(tmp_path: Path, lines: str, told: str) -> None:
    found = refused(tmp_path, 'signing_key: "${file:erasure.key}"', lines)
    assert any(told in one for one in found), found


PEOPLE = 'on_erase: delete, other_subjects: [{identified_by: "to -> lake/customers.customer_id", personal: [to]}]}'


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    names = ("levelname", "setting", "at", "new_name", "accepted_until")
    return [tuple(getattr(one, name) for name in names) for one in caplog.records if hasattr(one, "new_name")]


@pytest.mark.parametrize(
    ("former", "new_name", "settings"),
    [
        ("path:", "identified_by", ["customers.path", "orders/.other_subjects[0].path", "orders/.path"]),
        ("others:", "other_subjects", ["orders/.others"]),
    ],
)
def test_a_former_name_is_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, former: str, new_name: str, settings: list[str]
) -> None:
    block = BLOCK.replace("on_erase: delete}", PEOPLE)
    present = loaded(tmp_path, block)
    assert present.former_names == ()
    assert logged(caplog) == []
    block = block.replace(f"{new_name}:", former).replace(
        "s3://bucket/t: {subject: customer, path", "s3://bucket/t: {subject: customer, identified_by"
    )
    with caplog.at_level(logging.WARNING, "deltarelay"):
        project = loaded(tmp_path, block)
    assert project.erasure == present.erasure
    assert describe(project) == describe(present)
    lines = (BASE + block).splitlines()
    for level, setting, at, name, until in logged(caplog):
        assert (level, name, until) == ("WARNING", new_name, "1.0")
        file, line, column = str(at).rsplit(":", 2)
        assert file == f"{tmp_path}/d.yaml"
        assert lines[int(line) - 1][int(column) - 1 :].startswith(former), setting
    assert [str(one[1]).removeprefix("erasure.tables../lake/") for one in logged(caplog)] == settings
    first, *_ = project.former_names
    assert f"is now called `{new_name}`; the former name works until 1.0" in str(first)


@pytest.mark.parametrize(
    ("old", "new", "path", "place"),
    [
        (
            "identified_by: email,",
            "path: email, identified_by: email,",
            "erasure.tables.s3://bucket/t.path",
            "path: email, identified_by",
        ),
        (
            "on_erase: delete}",
            f"others: [], {PEOPLE}",
            "erasure.tables../lake/orders/.others",
            "others: [], on_erase",
        ),
    ],
)
def test_a_setting_by_both_names_is_refused(tmp_path: Path, old: str, new: str, path: str, place: str) -> None:
    block = BLOCK.replace(old, new)
    with pytest.raises(ConfigError, match=r"is the former name of `(identified_by|other_subjects)`") as caught:
        loaded(tmp_path, block)
    (entry,) = caught.value.fields["errors"]
    line = next(number for number, text in enumerate((BASE + block).splitlines(), 1) if place in text)
    column = (BASE + block).splitlines()[line - 1].index(place) + 1
    assert (entry["path"], entry["line"], entry["column"]) == (path, line, column)
    assert f"d.yaml:{line}:{column}: {path}: " in caught.value.message
