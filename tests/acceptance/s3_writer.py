"""A process that writes to a Delta table on S3, by Spark or by whichever delta-rs is first on its path.

The one argument is a JSON object (``Told``). Each line of stdin is one thing to do, as JSON, ``{"append": "a row"}``; each
answer a line of stdout, ``{"rows": …}`` or ``{"error": "…"}``. The first line says that the process is ready.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from infra.s3.model import Storage

Act = Callable[[str], Any]


class Told(TypedDict):
    kind: Literal["spark", "delta-rs"]
    storage: Mapping[str, Any]
    address: str
    folder: str
    jars: list[str]
    java: str


def delta_rs(told: Told) -> Mapping[str, Act]:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from infra.s3.settings import delta_rs_options

    storage, address = Storage.model_validate(told["storage"]), told["address"]
    options = delta_rs_options(storage, address, writing=True)

    def append(row: str) -> None:
        write_deltalake(address, pa.table({"name": [row]}), mode="append", storage_options=options)

    def read(_: str) -> list[str]:
        rows = DeltaTable(address, storage_options=options).to_pyarrow_table(columns=["name"])
        return sorted(rows.column("name").to_pylist())

    return {"append": append, "read": read}


def spark(told: Told) -> Mapping[str, Act]:
    from pyspark.sql.types import StringType, StructField, StructType

    from cdf import ChangeFeed
    from infra.spark.session_builder import session

    folder, address = Path(told["folder"]), told["address"]
    started = session(
        app_name="deltarelay-s3-writer",
        master="local[1]",
        jars=told["jars"],
        storage=Storage.model_validate(told["storage"]),
        conf={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": told["java"],
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
        log_file=folder / "spark.log",
    )
    schema = StructType([StructField("name", StringType())])

    def append(row: str) -> None:
        started.sql(f"select '{row}' as name").write.format("delta").mode("append").save(address)

    def read(_: str) -> list[str]:
        return sorted(row[0] for row in started.read.format("delta").load(address).select("name").collect())

    def create(where: str) -> None:
        ChangeFeed.create(started, where, schema)

    def enable(where: str) -> None:
        ChangeFeed(started, where).enable()

    return {"append": append, "read": read, "create": create, "enable": enable}


def main(told: Told) -> None:
    try:
        acts = spark(told) if told["kind"] == "spark" else delta_rs(told)
    except Exception as error:
        _say(error=_words(error))
        return
    _say(rows="ready")
    for line in sys.stdin:
        ((name, value),) = json.loads(line).items()
        try:
            done = acts[name](value)
        except Exception as error:
            _say(error=_words(error))
        else:
            _say(rows=done)


def _words(error: Exception) -> str:
    hint = getattr(error, "hint", None)
    return f"{type(error).__name__}: {error}" + (f" ({hint})" if hint else "")


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
