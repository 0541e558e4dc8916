"""What do tables on S3 cost? Three questions, with moto on loopback for S3 and DynamoDB, in a process of its own.

* **A window**: one table on ``s3a`` and its like on the disk, in one Spark; each round commits 1,000 rows to both and brings
  both targets up to date, in an order left to chance. Timed is the whole ``run`` of that one window, and the ratio is S3 ÷
  disk. moto answers within a few milliseconds, S3 within some ten: the ratio is for the number of requests, of which too
  many show here first. Aim: 2.5.
* **The lock**: commits of one row by delta-rs 1.6.0, with the lock table ÷ without it, where it puts each commit on the
  condition that there is none. Asking for the newest entry, claiming the version, copying the temporary file and completing
  the entry make 20 requests of 13, and the added ones are of the dearer kind, as on AWS. Aim: 2. It is delta-rs and not
  Spark because not every registry has Spark's log store.
* **The start**: Spark with the small set of jars for S3 ÷ Spark with Delta alone, both from Ivy's cache, a new process each.
  Some twenty MB are to be noticed by nobody; the bundle that Hadoop asks for has 686. Aim: 1.3.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from infra.embedded.s3 import EmbeddedS3

__all__ = ["measure"]

WINDOW_AIM, LOCK_AIM, START_AIM = 2.5, 2.0, 1.3
REGION, BUCKET, LOCK_TABLE = "eu-west-1", "bench", "delta_log"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}
"""moto takes any."""
ROOT = Path(__file__).resolve().parents[1]


def measure(lab: Lab) -> Iterator[Answer]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DELTARELAY_"))} | KEYS
    with EmbeddedS3(lab.folder / "s3") as server:
        _make_bucket(server.endpoint)
        yield _window(lab, own, server.endpoint)
        yield _lock(lab, own, server.endpoint)
        yield _start(lab, own, server.endpoint)


def _window(lab: Lab, environment: Mapping[str, str], endpoint: str) -> Answer:
    tables = {"s3": f"s3a://{BUCKET}/window", "disk": str(lab.folder / "s3-window")}
    told = {"quick": lab.quick, "tables": tables, "dsn": lab.dsn, "storage": _storage(endpoint, "single_writer")}
    found = _ask("window", told, environment)
    s3, disk = (median(found["run"][where]) for where in ("s3", "disk"))
    return Answer(
        question="s3: a window",
        ratio=s3 / disk,
        aim=WINDOW_AIM,
        better="lower",
        words=f"a run of one window: {s3:.3f} s from S3 (moto), {disk:.3f} s from the disk",
        detail={
            "run_seconds": [round(s3, 4), round(disk, 4)],
            "stage_and_apply_seconds": [round(median(found["stage_and_apply"][one]), 4) for one in ("s3", "disk")],
            "repetitions": len(found["run"]["s3"]),
        },
    )


def _lock(lab: Lab, environment: Mapping[str, str], endpoint: str) -> Answer:
    from tests.fixtures.old_delta_rs import LAST_WITH_LOCK, delta_rs_with_lock

    path = os.pathsep.join([str(delta_rs_with_lock()), str(ROOT)])
    place = ["--table", LOCK_TABLE, "--region", REGION, "--endpoint", endpoint]
    _run(["infra.cli.main", "storage", "lock", "create", *place], environment)
    tables = {
        name: {"storage": _storage(endpoint, kind), "address": f"s3a://{BUCKET}/{name}"}
        for name, kind in (("with", "dynamodb"), ("without", "single_writer"))
    }
    found = _ask("commits", {"quick": lab.quick, "tables": tables}, {**environment, "PYTHONPATH": path})
    with_lock, without = median(found["with"]), median(found["without"])
    return Answer(
        question="s3: the lock",
        ratio=with_lock / without,
        aim=LOCK_AIM,
        better="lower",
        words=f"a commit (deltalake {LAST_WITH_LOCK}): {with_lock * 1e3:.0f} ms with lock, {without * 1e3:.0f} ms without",
        detail={
            "commit_seconds": [round(with_lock, 4), round(without, 4)],
            "client": f"deltalake {LAST_WITH_LOCK}",
            "repetitions": len(found["with"]),
        },
    )


def _start(lab: Lab, environment: Mapping[str, str], endpoint: str) -> Answer:
    storage = _storage(endpoint, "single_writer")
    variants: dict[str, Any] = {"with": storage, "without": None}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    jar_bytes: dict[str, int] = {}
    for counts in lab.rounds(warm_up=1, timed=7):
        for name in lab.shuffled(list(variants)):
            found = _ask("start", {"storage": variants[name]}, environment)
            jar_bytes[name] = found["jar_bytes"]
            if counts:
                seconds[name].append(found["seconds"])
    with_s3, without = median(seconds["with"]), median(seconds["without"])
    small = jar_bytes["with"] - jar_bytes["without"]
    return Answer(
        question="s3: the start",
        ratio=with_s3 / without,
        aim=START_AIM,
        better="lower",
        words=f"Spark is there after {with_s3:.1f} s with {small / 1e6:.0f} MB of jars for S3, {without:.1f} s without",
        detail={
            "start_seconds": [round(with_s3, 3), round(without, 3)],
            "jar_megabytes": [round(jar_bytes[name] / 1e6, 1) for name in ("with", "without")],
            "repetitions": len(seconds["with"]),
        },
    )


def _storage(endpoint: str, kind: str) -> dict[str, Any]:
    lock = {"table": LOCK_TABLE, "endpoint": endpoint} if kind == "dynamodb" else {}
    s3 = {"region": REGION, "endpoint": endpoint, "path_style": True, "credentials": "env"}
    return {"s3": s3, "commits": {"kind": kind, **lock}}


def _make_bucket(endpoint: str) -> None:
    import boto3

    keys = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, **keys)
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})


def _ask(what: str, told: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    return json.loads(_run(["benchmarks.s3_process", what, json.dumps(told)], environment).splitlines()[-1])


def _run(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a module of ours prints; its complaints go where ours go."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
