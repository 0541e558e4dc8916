"""The ``storage`` block: its mistakes in the words of all others, and nothing of it hidden that is no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdf.errors import ConfigError
from infra.cli.options import normalize_table
from infra.config.load import load
from infra.config.models import Project
from infra.s3.address import S3Address, normalize_address

CANARY = "AKIACANARY4410KEY"
BASE = """\
version: 1
connections: {w: {kind: postgres, dsn: x}}
pipelines: {p: {source: {table: s3a://lake/t, key: [id]}, sink: {connection: w, table: t}}}
"""


def loaded(folder: Path, storage: str) -> Project:
    file = folder / "d.yaml"
    file.write_text(f"{BASE}storage: {storage}\n")
    return load(file)


def refused(folder: Path, storage: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, storage)
    return caught.value


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("{commits: {kind: dynamodb, tabel: x}}", "storage.commits.tabel: unknown key; did you mean `table`?"),
        ("{commits: {kind: single_writer, table: x}}", "storage.commits.table: unknown key"),
        ("{commits: {kind: both}}", "storage.commits.kind: must be dynamodb or single_writer"),
        ("{commits: {kind: dynamo}}", "must be dynamodb or single_writer; did you mean `dynamodb`?"),
        ("{commits: {kind: 7}}", "storage.commits.kind: must be dynamodb or single_writer"),
        ("{commits: {table: x}}", "storage.commits.kind: is missing"),
        ("{commits: {kind: dynamodb, region: EU}}", "storage.commits.region: must be a region such as eu-west-1"),
        ("{commits: {kind: dynamodb, table: a b}}", "storage.commits.table: must be 3 to 255 letters"),
        ("{commits: dynamodb}", "storage.commits: must be a mapping"),
        ("{s3: {regin: eu-west-1}}", "storage.s3.regin: unknown key; did you mean `region`?"),
        ("{s3: {buckets: {raw: {regin: x}}}}", "storage.s3.buckets.raw.regin: unknown key; did you mean `region`?"),
        ("{s3: {buckets: {raw: {endpoint: x}}}}", "storage.s3.buckets.raw.endpoint: must be a URL"),
    ],
)
def test_mistakes(tmp_path: Path, storage: str, message: str) -> None:
    assert message in refused(tmp_path, storage).message


def test_the_hint_names_what_a_missing_kind_may_be(tmp_path: Path) -> None:
    assert refused(tmp_path, "{commits: {table: x}}").hint == "write kind: dynamodb or kind: single_writer"


def test_a_message_has_the_place_and_the_setting_and_no_part_of_the_file(tmp_path: Path) -> None:
    text = "{commits: {kind: dynamodb, table: delta_log, regoin: canary}}"
    message = refused(tmp_path, text).message
    (line,) = message.splitlines()
    assert line.startswith(f"{tmp_path}/d.yaml:")
    assert line.endswith(": storage.commits.regoin: unknown key; did you mean `region`?")
    text = "{s3: {credentials: profile:canary, regin: x, buckets: {raw: {region: eu-west-1, endpoint: canary}}}}"
    message = refused(tmp_path, text).message
    assert len(message.splitlines()) == 3
    assert "canary" not in message


@pytest.mark.parametrize("storage", ["{s3: {credentials: %s}}", "{s3: {credentials: %s, regin: x}}"])
def test_keys_that_were_pasted_are_not_repeated(tmp_path: Path, storage: str) -> None:
    error = refused(tmp_path, storage % CANARY)
    assert "never write the keys into this file" in error.message
    assert CANARY not in f"{error!r} {error.message} {error.to_dict()}"


def test_a_region_may_be_left_out(tmp_path: Path) -> None:
    lock = loaded(tmp_path, "{commits: {kind: dynamodb}}").storage.lock
    assert lock is not None
    assert (lock.table, lock.region) == ("delta_log", None)


@pytest.mark.parametrize(
    "address", [f"s3://{CANARY}:secret@lake/t", f"s3a://{CANARY}@lake/t", f"s3a://lake:{CANARY}/t"]
)
def test_keys_in_an_address_are_refused_and_not_repeated(address: str) -> None:
    for read in (normalize_address, S3Address.parse):
        with pytest.raises(ValueError, match="contains credentials") as caught:
            read(address)
        assert CANARY not in str(caught.value)
    with pytest.raises(ConfigError) as refused:
        normalize_table(address)
    assert CANARY not in f"{refused.value} {refused.value.hint}"


def test_what_is_not_on_s3_is_no_address_on_s3() -> None:
    with pytest.raises(ValueError, match="is not on S3"):
        S3Address.parse("/data/t")
