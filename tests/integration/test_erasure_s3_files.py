"""A table in a bucket: objects, the former versions that the bucket keeps, uploads that nobody finished. No JVM."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.files import LocalFiles
from audit.erasure.scan.results import ScanResult
from audit.erasure.scan.s3_files import S3Files, files_at
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from cdf.errors import SourceUnavailable
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import KEY_ID, SECRET, Aws

CANARY = "canary.person@example.org"
TERMS = SearchTerms([SearchTerm("R-1", CANARY, "email")])
NOW = dt.datetime.now(dt.UTC)


def options(aws: Aws) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": aws.region,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }


class Bucket:
    def __init__(self, aws: Aws) -> None:
        self.aws, self.address = aws, f"s3a://{aws.bucket}/lake/customers"

    def write(self, *emails: str, mode: str = "append") -> None:
        rows = pa.table({"customer_id": pa.array(range(len(emails)), pa.int64()), "email": list(emails)})
        write_deltalake(self.address, rows, mode=mode, storage_options=options(self.aws))  # type: ignore[call-overload]

    def scan(self) -> ScanResult:
        files = files_at(self.address, lambda _: self.aws.s3, lambda _: options(self.aws))
        return scan_table(files, TERMS, now=NOW)

    def lifecycle(self, **rule: object) -> None:
        rules = [{"ID": "one", "Status": "Enabled", "Filter": {"Prefix": "lake/"}, **rule}]
        self.aws.s3.put_bucket_lifecycle_configuration(Bucket=self.aws.bucket, LifecycleConfiguration={"Rules": rules})


@pytest.fixture
def bucket(aws: Aws) -> Bucket:
    return Bucket(aws)


def test_what_is_there_and_what_was(bucket: Bucket) -> None:
    bucket.write("a@example.org", "b@example.org")
    found = bucket.scan()
    assert (found.finds, found.unseen) == ((), ())
    bucket.write(CANARY)
    assert {one.reason for one in bucket.scan().finds} == {"current file", "statistics"}
    bucket.write("c@example.org", mode="overwrite")
    found = bucket.scan()
    told = {one.reason: one for one in found.finds}
    assert set(told) == {"former file", "statistics"}
    assert told["former file"].place.startswith(f"{bucket.address}/part-")
    assert told["former file"].clears_on is not None
    assert 7 <= (told["former file"].clears_on - NOW.date()).days <= 9
    assert found.unseen == ()


def test_versions_that_the_bucket_keeps(bucket: Bucket) -> None:
    """VACUUM has removed the file, as far as the table can see."""
    versioning = {"Status": "Enabled"}
    bucket.aws.s3.put_bucket_versioning(Bucket=bucket.aws.bucket, VersioningConfiguration=versioning)
    bucket.write(CANARY)
    bucket.write("c@example.org", mode="overwrite")
    table = DeltaTable(bucket.address, storage_options=options(bucket.aws))
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    told = {one.reason: one for one in bucket.scan().finds}
    assert set(told) == {"former version", "statistics"}
    assert told["former version"].clears_on is None
    bucket.lifecycle(NoncurrentVersionExpiration={"NoncurrentDays": 20})
    [found] = [one for one in bucket.scan().finds if one.reason == "former version"]
    assert found.clears_on is not None
    assert 20 <= (found.clears_on - NOW.date()).days <= 23


def test_an_upload_that_nobody_finished(bucket: Bucket) -> None:
    bucket.write("a@example.org")
    key = "lake/customers/part-unfinished.parquet"
    upload = bucket.aws.s3.create_multipart_upload(Bucket=bucket.aws.bucket, Key=key)["UploadId"]
    bucket.aws.s3.upload_part(
        Bucket=bucket.aws.bucket, Key=key, PartNumber=1, UploadId=upload, Body=CANARY.encode() * 10
    )
    [unseen] = bucket.scan().unseen
    assert unseen.place == f"{bucket.address}/part-unfinished.parquet"
    assert "no lifecycle rule" in unseen.why
    bucket.lifecycle(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 3})
    [unseen] = bucket.scan().unseen
    assert "removed by" in unseen.why


def test_a_key_that_is_a_value(bucket: Bucket) -> None:
    bucket.write("a@example.org")
    bucket.aws.s3.put_object(Bucket=bucket.aws.bucket, Key=f"lake/customers/email={CANARY}/part-0.parquet", Body=b"")
    found = bucket.scan()
    assert {one.place for one in found.finds} == {f"{bucket.address}/email=…"}
    assert CANARY not in str(found)


def test_a_bucket_that_is_not_there(bucket: Bucket) -> None:
    files = S3Files("no-such-bucket-at-all", "lake", bucket.aws.s3)
    [unseen] = scan_table(files, TERMS, now=NOW).unseen
    assert "no such bucket" in unseen.why


def test_an_outage_is_told_and_not_certified(bucket: Bucket) -> None:
    """What cannot be read for now is another thing than what nobody may read: the scan ends, and is done again."""
    bucket.write("a@example.org")
    nowhere = bucket.aws.client("s3", endpoint_url="http://127.0.0.1:1")
    with pytest.raises(SourceUnavailable, match=r"cannot be read now: the bucket cannot be queried") as outage:
        scan_table(S3Files(bucket.aws.bucket, "lake/customers", nowhere), TERMS, now=NOW)
    assert outage.value.__cause__ is not None
    assert outage.value.__cause__.__context__ is None, "boto3's text is not part of the traceback"


@pytest.mark.parametrize("code", ["AccessDenied", "AllAccessDisabled"])
def test_what_may_not_be_read_is_not_searched(bucket: Bucket, aws_proxy: AwsProxy, code: str) -> None:
    bucket.write("a@example.org")
    aws_proxy.refuse("GET .*part-", code=code, status=403)
    client = bucket.aws.client("s3", endpoint_url=aws_proxy.endpoint)
    files = S3Files(bucket.aws.bucket, "lake/customers", client, options(bucket.aws))
    [unseen] = scan_table(files, TERMS, now=NOW).unseen
    assert unseen.why == f"the bucket refuses it ({code})"


def test_other_stores(tmp_path: object) -> None:
    def nothing(_: str) -> None:
        raise AssertionError("no bucket is asked")

    assert isinstance(files_at(str(tmp_path), nothing, nothing), LocalFiles)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        files_at(f"{tmp_path}/nowhere", nothing, nothing)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="abfss"):
        files_at("abfss://lake@account/customers", nothing, nothing)  # type: ignore[arg-type]
