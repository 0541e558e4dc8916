"""The search of ``fix_closures`` finds what it is there for; every other test with Spark is searched by it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from audit.encryption.root_keys import FileRoot
from audit.erasure.register.secrets import Keys, SealKey
from audit.signing.signer import Signer
from tests.fixtures.fix_closures import Secrets

SIGNER = Signer.generate("example.org/erasure")
KEYS = Keys(SIGNER)


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (SIGNER, ["a key made in Signer"]),
        (KEYS, ["a key made in Signer.derive"]),
        (SealKey.of(SIGNER), ["a key made in Signer.derive"]),
        (FileRoot.generate(), ["a key made in audit.encryption.root_keys"]),
        (KEYS.marker, []),
    ],
    ids=["signing key", "keys", "seal key", "root key", "watch key"],
)
def test_what_is_handed_to_tasks(
    spark: SparkSession, secrets_in_closures: Secrets, held: object, found: list[str]
) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert held is not None
        yield from batches

    before = secrets_in_closures.searched
    spark.range(1).mapInArrow(work, "id long")
    assert secrets_in_closures.searched > before
    assert secrets_in_closures.found == found
    secrets_in_closures.found.clear()
