"""The tables that a pattern meets on S3: against moto's real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdf.errors import ConfigError, SourceUnavailable
from infra.config.load import load
from infra.config.models import Project
from tests.fixtures.fix_aws import SECRET, Aws

FILE = """\
version: 1
connections:
  warehouse: {{kind: postgres, dsn: postgresql://h/db}}
storage:
  s3: {{region: {aws.region}, endpoint: "{endpoint}", path_style: true, credentials: env}}
pipelines:
  sales:
    source: {{tables: "{pattern}", key: [id]}}
    sink: {{connection: warehouse, table: "sales.{{name}}"}}
"""


def read(folder: Path, aws: Aws, pattern: str, *, endpoint: str | None = None) -> Project:
    file = folder / "deltarelay.yaml"
    file.write_text(FILE.format(aws=aws, pattern=pattern, endpoint=endpoint or aws.endpoint))
    return load(file)


@pytest.fixture
def bucket(aws: Aws) -> str:
    keys = [f"lake/sales/t{number:04d}/_delta_log/00000000000000000000.json" for number in range(1010)]
    keys += ["lake/sales/plain/part-0.parquet", "lake/sales/_tmp/_delta_log/0.json", "lake/salesmen/_delta_log/0.json"]
    keys += ["lake/sales/t0000/part-0.parquet", "top/_delta_log/0.json"]
    for key in keys:
        aws.s3.put_object(Bucket=aws.bucket, Key=key, Body=b"{}")
    return aws.bucket


def test_every_table_is_met_also_where_s3_lists_in_pages(tmp_path: Path, aws: Aws, bucket: str) -> None:
    project = read(tmp_path, aws, f"s3://{bucket}//lake/sales/*")
    names = [f"sales.t{number:04d}" for number in range(1010)]
    assert list(project.pipelines) == names
    assert project.pipeline("sales.t0042").source.table == f"s3a://{bucket}/lake/sales/t0042"
    project = read(tmp_path, aws, f"s3a://{bucket}/lake/sales/t01[02]*")
    assert list(project.pipelines) == names[100:110] + names[120:130]
    assert [one.source.table for one in read(tmp_path, aws, f"s3a://{bucket}/t*").pipelines.values()] == [
        f"s3a://{bucket}/top"
    ]


def test_what_is_wrong_is_told(tmp_path: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"deltarelay.yaml:8:22.*no Delta table matches s3a://.*/none/\*"):
        read(tmp_path, aws, f"s3a://{aws.bucket}/none/*")
    with pytest.raises(ConfigError, match=r"8:22: .*there is no bucket no-such-bucket"):
        read(tmp_path, aws, "s3a://no-such-bucket/lake/*")
    with pytest.raises(SourceUnavailable, match="cannot connect to the endpoint") as caught:
        read(tmp_path, aws, f"s3a://{aws.bucket}/lake/*", endpoint="http://127.0.0.1:9")
    assert SECRET not in f"{caught.value!r} {caught.value.hint}"
