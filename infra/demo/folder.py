"""The folder of a demo: its files, its replacement by a new demo, and how its servers are stopped."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.errors import ConfigError
from cdf.listing import list_some
from cdf.result import Result
from infra.demo.history import COPIED_VERSION
from infra.embedded.postgres import EmbeddedPostgres
from infra.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from infra.demo.screen import Screen
    from infra.embedded.kafka import EmbeddedKafka

__all__ = ["EVENTS", "PIPELINE", "TOPIC", "TRAIL", "DemoFolder", "StopResult", "stop_demo"]

PIPELINE = "customers"
EVENTS = "customers_events"
TRAIL = "customers_audit"
TOPIC = "lake.customers"
REGION = "us-east-1"
WINDOW_COMMITS = 2

_MARKER = ".deltarelay-demo"
_MARKED = "Made by `deltarelay demo`, which replaces the whole folder when it runs again. You may delete it.\n"

_CONFIG = """\
# yaml-language-server: $schema=deltarelay.schema.json
#
# Written by `deltarelay demo`; `deltarelay run --config` takes it as it is. The first line gives an editor the names
# and the meaning of all settings.
version: 1

{storage}connections:
  local:
    kind: postgres
    # The demo's own server, on a Unix socket of this machine. To keep a password out of this file, write a reference
    # to an environment variable or to a secret file.
    dsn: {dsn}
  trail:
    kind: delta_audit
    path: ./audit                  # the trail of each pipeline is a folder in it
    signing_key: ${{file:audit.key}} # signs checkpoints; created by `deltarelay audit keygen`
    anchors:                       # copies of the checkpoints, best where the writers of the trail have no access
      - {{kind: file, path: ./anchors}}
{broker}
pipelines:
  {pipeline}:
    source:
      table: {table}
      key: [customer_id]           # what identifies a row
      start: {start}                     # an empty target gets a copy of this version first; without it, of the latest
    sink:
      connection: local
      table: public.customers      # created where it is missing
    window:
      max_commits: {commits}               # maximum number of commits per step; 500 by default

  {trail}:
    source:
      table: {table}
      key: [customer_id]
      start: earliest              # every change since the feed was enabled
    sink:
      connection: trail
      table: customers
{events}"""

_ON_DISK = "./customers           # a path relative to this file; or a URL, or a catalog name"
_BUCKET = "deltarelay-demo"
_STORAGE = """\
storage:
  s3:
    region: {region}
    endpoint: {endpoint}   # the demo's own server; AWS by default
    path_style: true
    credentials: env                   # AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; this server accepts any
  commits:
    kind: single_writer                # a promise that only the demo writes; several writers need `kind: dynamodb`

"""

_BROKER = """\
  events:
    kind: kafka
    bootstrap_servers: {brokers}   # the demo's own broker, without passwords; see `security:`
"""
_EVENTS = """\

  {pipeline}:
    source:
      table: {table}
      key: [customer_id]
      start: earliest              # every change since the feed was enabled; `snapshot` begins with the current rows
    sink:
      connection: events
      topic: {topic}
      envelope: debezium           # each change with the row before and after it; `row` is the row alone
      lanes: 2                     # number of producers, each with its own transactions
      create: {{partitions: 3}}      # the topic is created where it is missing
    window:
      max_commits: {commits}
"""


@dataclass(frozen=True, slots=True)
class StopResult(Result):
    directory: str
    stopped: bool
    """False where no server was running."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    path: Path
    on_s3: bool = False

    @property
    def table(self) -> str:
        """The Delta table: a folder, or an address on S3."""
        return f"s3a://{_BUCKET}/customers" if self.on_s3 else str(self.path / "customers")

    @property
    def s3(self) -> Path:
        return self.path / "s3"

    @property
    def config(self) -> Path:
        return self.path / "deltarelay.yaml"

    @property
    def schema(self) -> Path:
        return self.path / "deltarelay.schema.json"

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def anchors(self) -> Path:
        """For demonstration only: an anchor proves little where the same people can write to it and to the trail."""
        return self.path / "anchors"

    @property
    def signing_key(self) -> Path:
        return self.path / "audit.key"

    @property
    def kafka(self) -> Path:
        return self.path / "kafka"

    @property
    def consumer(self) -> Path:
        return self.path / "events.py"

    @property
    def warehouse(self) -> Path:
        """The empty folder that Spark creates in its working directory, also for a user who starts it in this folder."""
        return self.path / "spark-warehouse"

    @property
    def marker(self) -> Path:
        return self.path / _MARKER

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.path / "customers", self.s3, self.postgres, self.audit, self.anchors, self.kafka, self.warehouse

    @property
    def _files(self) -> tuple[Path, ...]:
        return self.config, self.schema, self.signing_key, self.consumer

    def holds_demo(self) -> bool:
        return self.marker.is_file()

    def check(self) -> None:
        """Refuse a folder with files that no demo has created. Changes nothing."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file", hint="choose another folder with --directory")
        ours = {one.name for one in (*self._folders, *self._files, self.marker)}
        found = sorted(entry.name for entry in self.path.iterdir())
        foreign = [name for name in found if name not in ours] if self.holds_demo() else found
        if foreign:
            raise ConfigError(
                f"{self.path} contains files that are not the demo's ({list_some(foreign, 3)}): nothing was changed",
                hint="choose another folder with --directory, or move them away",
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other demos."""
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.marker, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written ({(error.strerror or type(error).__name__).lower()})",
                hint="choose another folder with --directory",
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    f"another demo is running in {self.path}",
                    hint="wait until it ends, or choose another folder with --directory",
                ) from None
            os.truncate(descriptor, 0)
            os.write(descriptor, _MARKED.encode())
            yield
        finally:
            os.close(descriptor)

    def clear(self) -> None:
        """Stop the servers of an earlier demo and remove its files."""
        if self.postgres.exists():
            EmbeddedPostgres(self.postgres).close()
        EmbeddedS3(self.s3).close()
        if (broker := self.broker()) is not None:
            broker.close()
        for folder in self._folders:
            if folder.exists():
                shutil.rmtree(folder)
        for file in self._files:
            file.unlink(missing_ok=True)

    def broker(self) -> EmbeddedKafka | None:
        """The broker of a demo with Kafka, which is imported only then."""
        if not self.kafka.exists():
            return None
        from infra.embedded.kafka import EmbeddedKafka

        return EmbeddedKafka(self.kafka)

    def write_config(self, dsn: str, store: EmbeddedS3 | None, broker: EmbeddedKafka | None) -> None:
        from infra.config.json_schema import schema

        self.schema.write_text(json.dumps(schema(), indent=2) + "\n")
        source = {
            "table": _ON_DISK if store is None else self.table,
            "start": COPIED_VERSION,
            "commits": WINDOW_COMMITS,
        }
        text = _CONFIG.format(
            storage="" if store is None else _STORAGE.format(region=REGION, endpoint=store.endpoint),
            dsn=json.dumps(dsn),
            broker="" if broker is None else _BROKER.format(brokers=broker.bootstrap_servers),
            pipeline=PIPELINE,
            trail=TRAIL,
            events="" if broker is None else _EVENTS.format(pipeline=EVENTS, topic=TOPIC, **source),
            **source,
        )
        self.config.write_text(text, encoding="utf-8")

    def make_bucket(self, store: EmbeddedS3) -> None:
        import boto3

        client = boto3.client("s3", endpoint_url=store.endpoint, region_name=REGION)
        client.create_bucket(Bucket=_BUCKET)


def stop_demo(output: Screen, directory: Path) -> StopResult:
    """Stop the servers of the demo in ``directory``; its data are kept. Does nothing where none is running."""
    folder = DemoFolder(directory.expanduser().resolve())
    if not folder.holds_demo():
        raise ConfigError(f"there is no demo in {folder.path}", hint="name its folder with --directory")
    server, store, broker = EmbeddedPostgres(folder.postgres), EmbeddedS3(folder.s3), folder.broker()
    runs, stored, sent = server.running(), store.running(), broker is not None and broker.running()
    server.close()
    store.close()
    if broker is not None:
        broker.close()
    output.line(f"the server in {folder.path} " + ("is stopped; its data are kept" if runs else "was not running"))
    if stored:
        output.line("the S3 server is stopped as well; its data were in memory and are lost")
    if sent:
        output.line("the Kafka broker is stopped as well; its data are kept")
    return StopResult(str(folder.path), runs or stored or sent)
