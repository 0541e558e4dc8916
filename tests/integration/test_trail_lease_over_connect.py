"""The lease of a trail between runners over Spark Connect and runners with classic sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.trail import lease
from audit.trail.lease import Lease
from audit.trail.lease_claims import Claim, ClassicClaims, ConnectClaims
from cdf.errors import LeaseHeld


@pytest.fixture(autouse=True)
def quick_lease() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lease, "RENEW_SECONDS", 0.5)
        yield


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path)


def acquire(spark: SparkSession, path: str) -> Lease:
    return Lease(spark, path, target="the trail")


def stop_renewing(held: Lease) -> None:
    """As in a process that was killed."""
    with held._lock:
        held._stopped.set()
    held._thread.join()


def test_a_classic_runner_is_refused_while_one_over_connect_lives(
    connect: SparkSession, spark: SparkSession, path: str
) -> None:
    held = acquire(connect, path)
    with pytest.raises(LeaseHeld):
        acquire(spark, path)
    with pytest.raises(LeaseHeld):
        acquire(connect, path)
    held.close()
    began = time.monotonic()
    acquire(spark, path).close()
    assert time.monotonic() - began < lease.LEASE_SECONDS


def test_a_runner_over_connect_is_refused_while_a_classic_one_lives(
    connect: SparkSession, spark: SparkSession, path: str
) -> None:
    held = acquire(spark, path)
    assert not Path(path, "_lease_connect").exists()
    for _ in range(2):  # the first one shows the classic runner that runners over Connect exist
        with pytest.raises(LeaseHeld):
            acquire(connect, path)
    held.close()
    assert ClassicClaims(spark, path).read_own() == ConnectClaims(connect, path).read_other()
    began = time.monotonic()
    acquire(connect, path).close()
    assert time.monotonic() - began < lease.LEASE_SECONDS


def test_the_claim_of_a_killed_runner_is_waited_for_once(
    connect: SparkSession, spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 4.0)
    for dead, successor in ((connect, spark), (spark, connect)):
        left = acquire(dead, path)
        stop_renewing(left)
        acquire(successor, path).close()
        claims = ConnectClaims(successor, path) if successor is connect else ClassicClaims(successor, path)
        other = claims.read_other()
        assert other is not None
        assert (other.holder != left.holder, other.seconds) == (True, 0)
        left.close()  # as if it were not dead: it may release the lease once more
        after = claims.read_other()
        assert (after and after.seconds) == 0


def test_a_claim_that_is_being_replaced_counts_as_alive(connect: SparkSession, spark: SparkSession, path: str) -> None:
    acquire(connect, path).close()
    folder = Path(path, "_lease_connect", "claim")
    for file in folder.iterdir():
        file.unlink()
    unreadable = Claim("", -1, 2 * lease.LEASE_SECONDS)  # as long as a claim of Spark Connect that can be read
    assert (ConnectClaims(connect, path).read_own(), ClassicClaims(spark, path).read_other()) == (
        unreadable,
        unreadable,
    )


def test_storage_that_does_not_answer_is_not_taken_for_a_trail_without_claims(spark: SparkSession) -> None:
    retries, hadoop = "ipc.client.connect.max.retries", spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    hadoop.set(retries, "0")
    try:
        claims = ClassicClaims(spark, "hdfs://127.0.0.1:1/trail")
        for read in (claims.read_own, claims.read_other):
            with pytest.raises(Exception, match="Connection refused"):
                read()
    finally:
        hadoop.unset(retries)


def test_a_server_that_compresses_what_it_writes(connect: SparkSession, spark: SparkSession, path: str) -> None:
    compress = "mapreduce.output.fileoutputformat.compress"
    connect.conf.set(compress, "true")
    try:
        held = acquire(connect, path)
        found = ClassicClaims(spark, path).read_other()
        assert found is not None
        assert found.holder == held.holder
        held.close()
    finally:
        connect.conf.unset(compress)
