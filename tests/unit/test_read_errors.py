"""What Spark's and Delta's texts say of a table that the installed pair cannot read, as an error that names it."""

from __future__ import annotations

import pytest

from cdf.errors import FeatureNotSupported, VersionsExpired
from cdf.read_errors import translate

PARQUET = (
    "An error occurred while calling o1.collectToPython.\n"
    ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/t/part-0.\n"
    "\tat org.apache.spark.sql.execution.datasources.FileScanRDD$$anon$1.hasNext(FileScanRDD.scala:142)\n"
    "Caused by: java.lang.NullPointerException{explanation}\n"
    "\tat org.apache.parquet.format.converter.ParquetMetadataConverter.getLogicalTypeAnnotation(Converter.java:1145)\n"
)


class DeltaError(Exception):
    def getErrorClass(self) -> str:  # noqa: N802
        return "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_PREVIEW"


@pytest.mark.parametrize("explanation", ["", ': Cannot invoke "LogicalType$_Fields.ordinal()", it is null'])
def test_a_parquet_type_of_a_newer_spark_is_named(explanation: str) -> None:
    found = translate(RuntimeError(PARQUET.format(explanation=explanation)), table="t", first=1, last=2)
    assert isinstance(found, FeatureNotSupported)
    assert found.message.startswith("version 1 to 2 of t needs a Parquet type that the installed Spark does not know: ")
    assert "newer pair of Spark and Delta" in str(found.hint)


def test_a_change_of_type_that_delta_does_not_know_is_named() -> None:
    found = translate(DeltaError("unsupported"), table="t", first=1, last=2)
    assert isinstance(found, FeatureNotSupported)
    assert "needs the table feature typeWidening, with a change of type that the installed Delta Lake" in found.message


def test_a_file_that_is_gone_is_no_type_that_is_unknown() -> None:
    gone = RuntimeError(
        f"{PARQUET.format(explanation='').split('Caused by')[0]}Caused by: java.io.FileNotFoundException: /t"
    )
    assert isinstance(translate(gone, table="t", first=1, last=2), VersionsExpired)
