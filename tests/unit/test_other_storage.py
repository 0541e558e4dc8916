"""Azure, Google and HDFS: addresses and settings pass unchanged, only real passwords are masked, errors keep their cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.config.load import load
from infra.config.models import describe
from infra.config.values import resolve_table
from infra.diagnostics.delta_table import translate_read_error
from infra.spark.session_builder import build_settings
from infra.url_passwords import mask_passwords

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "replicate-from-azure-google-hdfs.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
ADDRESSES = (
    "abfss://lake@account.dfs.core.windows.net/sales/orders",
    "abfss://lake@account.dfs.core.windows.net/day=2026-01-01T00:00/who@x",
    "gs://lake/sales/orders",
    "hdfs://namenode:8020/sales/orders",
    "hdfs://namenode:8020/sales/who@x",
    "hdfs://hdfs@namenode:8020/sales",
    "hdfs:///sales/orders",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_without_a_password_is_accepted_and_shown_as_it_is(address: str) -> None:
    assert resolve_table(address, None) == address
    assert mask_passwords(f"reading {address} failed") == f"reading {address} failed"
    assert translate_read_error(address, OSError("no answer")).message.startswith(f"{address} cannot be read")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abfss://lake:hunter2@account/x", "abfss://***@account/x"),
        ("https://me:hunter2@h:9000/a@b?c", "https://***@h:9000/a@b?c"),
        ("https://me:hun@ter2@h/a", "https://***@h/a"),
        ("https://me:hun/ter2@h/a", "https://***@h/a"),
        ("https://me:1234@h/a", "https://***@h/a"),
        ("https://me:123/ter2@h/a", "https://***@h/a"),
        ("s3a://me:123/ter2@bucket/a", "s3a://***@bucket/a"),
        ("hdfs://me:hunter2@namenode:8020/a", "hdfs://***@namenode:8020/a"),
        ("https://:hunter2@h/a", "https://***@h/a"),
        ("a https://me:hunter2@h/a and gs://b/x", "a https://***@h/a and gs://b/x"),
    ],
)
def test_a_password_is_masked_and_refused(text: str, shown: str) -> None:
    assert mask_passwords(text) == shown
    with pytest.raises(ValueError, match="contains credentials"):
        resolve_table(text, None)


def test_a_password_or_signature_in_the_cause_is_masked_too() -> None:
    """The colon of a URL was removed with other decoration before passwords were looked for."""
    said = "Generic error:\n  \x1b[31m↳\x1b[0m GET https://me:hunter2@h/a?sig=canary\n  ↳ 404 Not Found"
    message = translate_read_error("gs://lake/x", OSError(said)).message
    assert message == (
        "gs://lake/x cannot be read as a Delta table (OSError: Generic error: GET https://***@h/a?*** 404 Not Found)"
    )


def test_of_a_long_error_the_cause_at_its_end_is_kept() -> None:
    error = translate_read_error(
        "abfss://c@a/x", OSError("Kernel error " + "x" * 1000 + " 403 This request is not authorized")
    )
    assert "(OSError: Kernel error " in error.message
    assert error.message.endswith(" 403 This request is not authorized)")
    assert len(error.message) < 400
    assert "credentials from the environment" in str(error.hint)
    assert "credentials from the environment" not in str(translate_read_error("/data/x", OSError("")).hint)


@pytest.mark.parametrize("example", EXAMPLES, ids=["azure", "google", "hdfs"])
def test_the_examples_of_the_guide_are_valid_and_their_settings_reach_spark(tmp_path: Path, example: str) -> None:
    file = tmp_path / "deltarelay.yaml"
    file.write_text(example)
    project = load(file, environ={"WAREHOUSE_DSN": "postgresql://h/d", "AZURE_KEY": "canary-hunter2"})
    assert project.pipeline("orders").source.table in ADDRESSES
    assert not project.uses_s3()
    assert "canary" not in str(describe(project))
    conf = project.spark_settings()
    made = build_settings("local[1]", conf=conf, environment={})
    for name, value in conf.items():
        assert value in made[name].split(",")
    if "spark.jars.packages" in conf:
        assert "io.delta:delta-spark" in made["spark.jars.packages"]
