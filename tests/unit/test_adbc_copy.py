"""A connection that is opened while rows are prepared."""

from __future__ import annotations

import pytest

from connectors.postgres.errors import StagingFailed
from connectors.postgres.staging import adbc_copy


class Connection:
    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    opened = Connection()
    monkeypatch.setattr(adbc_copy, "bulk_connection", lambda _: opened)
    return opened


def test_it_is_closed_at_the_end(connection: Connection) -> None:
    with adbc_copy.connect_ahead("dsn") as connect:
        assert connect() is connection
        assert connection.closed == 0
    assert connection.closed == 1


def test_it_is_closed_if_the_rows_fail(connection: Connection) -> None:
    with pytest.raises(ValueError, match="rows"), adbc_copy.connect_ahead("dsn"):
        raise ValueError("rows")
    assert connection.closed == 1


def test_a_refused_login_is_raised_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise StagingFailed("28P01")

    monkeypatch.setattr(adbc_copy, "bulk_connection", refuse)
    with adbc_copy.connect_ahead("dsn"):  # no rows, no connection needed
        pass
    with pytest.raises(StagingFailed), adbc_copy.connect_ahead("dsn") as connect:
        connect()
