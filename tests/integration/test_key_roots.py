"""Root keys, from a file and in AWS KMS (moto's server): what they wrap opens by them and in its place only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config

from audit.encryption.root_keys import FileRoot, KmsRoot, Root, RootRefused
from cdf.errors import CdfError, ConfigError, SinkUnavailable
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import REGION, Aws
from tests.integration.postgres_case import tells

ARN = f"aws_kms:arn:aws:kms:{REGION}:123456789012:key/1"
ONCE = Config(retries={"total_max_attempts": 1})
KEY = b"shard key of thirty-two bytes ok"


@pytest.fixture(params=["file", "kms"])
def make(request: pytest.FixtureRequest) -> Callable[[], Root]:
    """Makes a root key that no test has seen."""
    if request.param == "file":
        return FileRoot.generate
    aws: Aws = request.getfixturevalue("aws")
    return lambda: kms(aws)[0]


def kms(aws: Aws) -> tuple[KmsRoot, str, Any]:
    client = aws.client("kms")
    arn = client.create_key(Description="root")["KeyMetadata"]["Arn"]
    return KmsRoot(f"aws_kms:{arn}", lambda region: aws.client("kms", region_name=region)), arn, client


def test_what_is_wrapped_opens_by_it_and_in_its_place(make: Callable[[], Root]) -> None:
    root = make()
    wrapped = root.wrap(KEY, context="epoch 1 shard 3")
    assert KEY not in wrapped
    assert root.unwrap(wrapped, context="epoch 1 shard 3") == KEY
    altered = bytes([*wrapped[:-1], wrapped[-1] ^ 1])
    for other, one, context in (
        (make(), wrapped, "epoch 1 shard 3"),
        (root, wrapped, "epoch 1 shard 4"),
        (root, altered, "epoch 1 shard 3"),
    ):
        with pytest.raises(ConfigError) as refused:
            other.unwrap(one, context=context)
        assert root.name in refused.value.message or other.name in refused.value.message
        assert refused.value.__cause__ is None
    assert make().name != root.name


class TestFile:
    def test_as_text(self, tmp_path: Path) -> None:
        root = FileRoot.generate()
        assert FileRoot.parse(root.secret() + "\n") == root
        assert root.secret().rpartition("+")[2] not in repr(root) + root.name
        root.write(tmp_path / "root.key")
        assert (tmp_path / "root.key").stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match="already"):
            FileRoot.generate().write(tmp_path / "root.key")
        assert FileRoot.parse((tmp_path / "root.key").read_text()) == root
        with pytest.raises(ConfigError, match="cannot be written"):
            root.write(tmp_path / "not there" / "root.key")

    def test_slips_of_the_pen(self) -> None:
        text = FileRoot.generate().secret()
        middle = len(text) - 20
        for bad in ("", "secret", text[:-1], text.lower(), text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]):  # fmt: skip # noqa: E501
            with pytest.raises(ConfigError, match="not a valid root key") as refused:
                FileRoot.parse(bad)
            assert not bad or bad not in str(refused.value)

    def test_somebody_has_to_destroy_it(self) -> None:
        assert FileRoot.generate().retire(7) is None


class TestKms:
    def test_it_is_destroyed_on_a_day(self, aws: Aws) -> None:
        root, arn, client = kms(aws)
        day = root.retire(7)
        assert day == client.describe_key(KeyId=arn)["KeyMetadata"]["DeletionDate"].astimezone(dt.UTC).date()
        assert day is not None
        assert abs((day - dt.datetime.now(dt.UTC).date()).days - 7) <= 1
        # moto goes on using a key that is to be deleted; AWS refuses at once, which nothing here has seen
        assert root.retire(20) == day  # by a rotation that was cut off after that

    def test_by_its_alias(self, aws: Aws) -> None:
        _, arn, client = kms(aws)
        client.create_alias(AliasName="alias/deltarelay", TargetKeyId=arn)
        alias = arn.replace(arn.rpartition(":")[2], "alias/deltarelay")
        root = KmsRoot(f"aws_kms:{alias}", lambda _: client)
        assert root.unwrap(root.wrap(KEY, context="a"), context="a") == KEY
        root.retire(7)
        assert client.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"] == "PendingDeletion"

    @pytest.mark.parametrize("text", ["aws_kms:", "arn:aws:kms:eu-west-1:123456789012:key/1", "aws_kms:key/1"])
    def test_no_arn(self, text: str) -> None:
        with pytest.raises(ConfigError, match="is named aws_kms:arn:"):
            KmsRoot(text, lambda _: None)

    def test_one_that_is_not_there(self, aws: Aws) -> None:
        root = KmsRoot(f"aws_kms:arn:aws:kms:{REGION}:123456789012:key/none", lambda _: aws.client("kms"))
        with pytest.raises(ConfigError, match="does not exist") as refused:
            root.wrap(KEY, context="a")
        assert refused.value.__cause__ is None

    def test_no_server(self, aws: Aws) -> None:
        nowhere = aws.client("kms", endpoint_url="http://127.0.0.1:1")
        root = KmsRoot(f"aws_kms:arn:aws:kms:{REGION}:123456789012:key/1", lambda _: nowhere)
        with pytest.raises(SinkUnavailable, match="cannot be reached now"):
            root.wrap(KEY, context="a")

    @pytest.mark.parametrize(
        ("code", "status", "kind", "words"),
        [
            ("ThrottlingException", 400, SinkUnavailable, "is busy"),
            ("RequestLimitExceeded", 400, SinkUnavailable, "is busy"),
            ("KMSInternalException", 500, SinkUnavailable, "is busy"),
            ("UnheardOf", 503, SinkUnavailable, "is busy"),
            ("DisabledException", 400, ConfigError, "cannot be used"),
            ("IncorrectKeyException", 400, RootRefused, "another root key wrapped them"),
            ("AccessDeniedException", 400, ConfigError, "refuses to use"),
        ],
    )
    def test_what_kms_refuses(
        self, aws: Aws, aws_proxy: AwsProxy, code: str, status: int, kind: type[CdfError], words: str
    ) -> None:
        aws_proxy.refuse("Decrypt", code=code, status=status)
        root = KmsRoot(ARN, lambda _: aws.client("kms", endpoint_url=aws_proxy.endpoint, config=ONCE))
        with pytest.raises(kind, match=words) as refused:
            root.unwrap(b"wrapped", context="a")
        assert type(refused.value) is kind
        assert refused.value.condition == (None if kind is RootRefused else code)
        assert refused.value.hint
        assert "by the proxy" not in tells(refused.value)

    def test_credentials_that_have_expired_are_replaced(self, aws: Aws, aws_proxy: AwsProxy) -> None:
        _, arn, _ = kms(aws)
        made: list[Any] = []

        def client(_: str) -> Any:
            made.append(aws.client("kms", endpoint_url=aws_proxy.endpoint))
            return made[-1]

        root = KmsRoot(f"aws_kms:{arn}", client)
        wrapped = root.wrap(KEY, context="a")
        aws_proxy.refuse("Decrypt", code="ExpiredTokenException", times=1)
        with pytest.raises(SinkUnavailable, match="the AWS credentials have expired") as expired:
            root.unwrap(wrapped, context="a")
        assert expired.value.condition == "ExpiredTokenException"
        assert root.unwrap(wrapped, context="a") == KEY
        assert len(made) == 2

    def test_the_region_is_that_of_the_arn(self, aws: Aws) -> None:
        asked = []
        root = KmsRoot(
            "aws_kms:arn:aws:kms:eu-central-1:123456789012:key/1",
            lambda region: asked.append(region) or aws.client("kms"),  # type: ignore[func-returns-value]
        )
        with pytest.raises(ConfigError):
            root.wrap(KEY, context="a")
        assert asked == ["eu-central-1"]
