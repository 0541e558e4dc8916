"""Sink kinds are found by name, built-in or by entry point, and a broken one complains only when it is used."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

import connectors.registry
from cdf.errors import ConfigError
from connectors.postgres.config import POSTGRES, PostgresConnection, PostgresOptions
from connectors.registry import ENTRY_POINT_GROUP, get_sink_kind, list_sink_kinds
from connectors.sink_kind import MigratedKind, SinkKind, TargetNaming


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Address(Strict):
    url: str


class Topic(Strict):
    topic: str


class MyKind:
    name = "mykind"
    connection: Any = Address
    options: Any = Topic

    def build(self, connection: Address, options: Topic, *, pipeline: str) -> Any:
        return (connection.url, options.topic, pipeline)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Offer entry points as installed packages would: ``install(mykind=object)``, a text being an import that fails."""
    module = types.ModuleType("thirdparty_sinks")
    monkeypatch.setitem(sys.modules, "thirdparty_sinks", module)
    points: list[importlib.metadata.EntryPoint] = []

    def install(*more: importlib.metadata.EntryPoint, **kinds: Any) -> None:
        for name, kind in kinds.items():
            value = kind if isinstance(kind, str) else f"thirdparty_sinks:{name}"
            if not isinstance(kind, str):
                setattr(module, name, kind)
            points.append(importlib.metadata.EntryPoint(name, value, ENTRY_POINT_GROUP))
        points.extend(more)
        connectors.registry._list_entry_points.cache_clear()

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        assert group == ENTRY_POINT_GROUP
        return points

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    yield install
    connectors.registry._list_entry_points.cache_clear()


def test_postgres_is_built_in() -> None:
    assert get_sink_kind("postgres") is POSTGRES
    assert isinstance(POSTGRES, SinkKind)
    assert isinstance(POSTGRES, TargetNaming)
    assert isinstance(POSTGRES, MigratedKind)
    assert (POSTGRES.connection, POSTGRES.options) == (PostgresConnection, PostgresOptions)
    assert list_sink_kinds()["postgres"].connection is PostgresConnection


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown sink kind `postgre`; did you mean `postgres`") as caught:
        get_sink_kind("postgre")
    assert caught.value.hint
    assert "set kind to one of delta_audit, kafka, postgres" in caught.value.hint
    with pytest.raises(ConfigError, match="unknown sink kind `zzz`; known kinds: delta_audit, kafka, postgres"):
        get_sink_kind("zzz")


def test_a_third_party_kind_is_found(install: Any) -> None:
    install(mykind=MyKind())
    assert list(list_sink_kinds()) == ["delta_audit", "kafka", "mykind", "postgres"]
    for kind in (get_sink_kind("mykind"), list_sink_kinds()["mykind"]):
        assert (kind.name, kind.connection, kind.options) == ("mykind", Address, Topic)
        built: Any = kind.build(Address(url="u"), Topic(topic="t"), pipeline="p")
        assert built == ("u", "t", "p")


def test_a_broken_kind_complains_only_when_used(install: Any) -> None:
    install(broken="no_such_module_anywhere:KIND", mykind=MyKind())
    kinds = list_sink_kinds()
    assert set(kinds) == {"broken", "delta_audit", "kafka", "mykind", "postgres"}
    assert kinds["mykind"].options is Topic
    assert "broken" in repr(kinds["broken"])
    uses = (lambda: kinds["broken"].connection, lambda: kinds["broken"].options, lambda: get_sink_kind("broken"))
    for use in uses:
        with pytest.raises(ConfigError, match=r"`broken` cannot be imported \(ModuleNotFoundError") as caught:
            use()
        assert caught.value.__cause__ is not None
        assert ENTRY_POINT_GROUP in (caught.value.hint or "")


def _changed(**attributes: Any) -> MyKind:
    kind = MyKind()
    for name, value in attributes.items():
        setattr(kind, name, value)
    return kind


class Loose(BaseModel):
    url: str


class Reserved(Strict):
    kind: str


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (MyKind, "must name an object"),
        (object(), "must name an object"),
        (_changed(name="other"), "its name is `other`"),
        (_changed(options=dict), "options is not a pydantic model"),
        (_changed(connection=Loose), "connection accepts unknown fields"),
        (_changed(connection=Reserved), "a field `kind`"),
    ],
    ids=["class", "no kind", "name", "no model", "loose", "reserved"],
)
def test_a_kind_that_breaks_its_promise_is_refused(install: Any, kind: Any, fault: str) -> None:
    install(mykind=kind)
    with pytest.raises(ConfigError, match=f"the sink kind `mykind` is broken: .*{fault}"):
        get_sink_kind("mykind")


def test_a_third_party_cannot_take_a_built_in_name(install: Any) -> None:
    install(postgres=MyKind())
    for use in (list_sink_kinds, lambda: get_sink_kind("postgres")):
        with pytest.raises(ConfigError, match="takes the name of a built-in sink kind") as caught:
            use()
        assert "thirdparty_sinks:postgres" in caught.value.message


def test_two_packages_cannot_share_a_name(install: Any) -> None:
    again = importlib.metadata.EntryPoint("mykind", "thirdparty_sinks:mykind", ENTRY_POINT_GROUP)
    install(again, mykind=MyKind())
    assert get_sink_kind("mykind").options is Topic  # the same one, found twice on the path
    install(importlib.metadata.EntryPoint("mykind", "elsewhere:KIND", ENTRY_POINT_GROUP))
    with pytest.raises(ConfigError, match="two packages offer the sink kind `mykind`"):
        list_sink_kinds()


def test_no_driver_is_imported_to_look_at_kinds() -> None:
    code = (
        "import sys; from connectors.registry import get_sink_kind, list_sink_kinds; list_sink_kinds()\n"
        "assert 'pydantic' not in sys.modules\n"
        "get_sink_kind('postgres'), get_sink_kind('kafka')\n"
        "drivers = ('psycopg', 'adbc_driver_manager', 'confluent_kafka', 'pyspark')\n"
        "print([m for m in drivers if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
