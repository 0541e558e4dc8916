"""Runs the demo. Its output addresses a user who sees the project for the first time."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.extras import require_extra
from infra.demo import history
from infra.demo.compare import Side, print_comparison, read_source, read_target
from infra.demo.folder import EVENTS, PIPELINE, TOPIC, TRAIL, WINDOW_COMMITS, DemoFolder
from infra.demo.follow import FollowedPipeline
from infra.demo.next_steps import KEYS, own_command, print_next_steps, shorten
from infra.demo.results import DemoResult, TopicResult, TrailResult
from infra.demo.screen import Runtime, Screen, format_step, plain_text
from infra.demo.trail import format_history, make_key, open_trail, verify_trail
from infra.embedded.postgres import EmbeddedPostgres
from infra.embedded.s3 import EmbeddedS3
from infra.signals import defer_signals, raise_interrupt_on_signal
from infra.spark.java import require_java
from infra.spark.session_builder import JARS_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.status import Status

    from cdf import Step
    from infra.config.models import Project
    from infra.demo.topic import TopicReader
    from infra.embedded.kafka import EmbeddedKafka

__all__ = ["run_demo"]


def run_demo(
    output: Screen, directory: Path, runtime: Runtime, *, on_s3: bool = False, with_kafka: bool = False
) -> DemoResult:
    """Run the demo. All its files are in ``directory``; with ``on_s3`` the table is in an S3 server of the demo. After a
    complete demo the servers keep running; after an error or Ctrl-C they are stopped."""
    began = time.monotonic()
    require_extra("spark")
    require_java()
    folder = DemoFolder(directory.expanduser().resolve(), on_s3)
    server = EmbeddedPostgres(folder.postgres)
    store = EmbeddedS3(folder.s3) if on_s3 else None
    broker = _broker(output, folder) if with_kafka else None
    replaces = folder.holds_demo()
    with folder.lock():
        output.note(f"All files of the demo are in {folder.path}.", style="bold")
        if replaces:
            output.note("An earlier demo in this folder is stopped and replaced.")
        try:
            with defer_signals():
                folder.clear()
            return _Demo(output, runtime, folder, server, store, broker, began).play()
        except BaseException:
            with defer_signals(), ExitStack() as closing:  # all of them, even if one cannot be closed
                for one in (server, store, broker):
                    if one is not None:
                        closing.callback(one.close)
            raise


def _broker(output: Screen, folder: DemoFolder) -> EmbeddedKafka:
    """The broker; its jars are fetched before this returns. Nothing is written to the folder."""
    require_extra("kafka")
    from infra.embedded.kafka import EmbeddedKafka, kafka_jars
    from infra.embedded.kafka_jars import jar_folder

    folder.check()
    if not jar_folder().exists():
        output.note("Fetching Kafka's jars (about 45 MB, once); this may take a minute.")
    kafka_jars()
    return EmbeddedKafka(folder.kafka, java_options=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))


class _Demo:
    def __init__(
        self,
        output: Screen,
        runtime: Runtime,
        folder: DemoFolder,
        server: EmbeddedPostgres,
        store: EmbeddedS3 | None,
        broker: EmbeddedKafka | None,
        began: float,
    ) -> None:
        self.output = output
        self.runtime = runtime
        self.folder = folder
        self.server = server
        self.store = store
        self.broker = broker
        self.began = began
        self.version = -1
        self.steps: list[Step] = []
        self.targets = {PIPELINE: "PostgreSQL"} | ({} if broker is None else {EVENTS: "Kafka"})
        """The target of each pipeline."""
        self.live_seconds: dict[str, list[float]] = {name: [] for name in self.targets}
        self.reader: TopicReader | None = None

    def play(self) -> DemoResult:
        from infra.config.load import load

        with self._doing("starting PostgreSQL"), defer_signals():
            self.server.start()
        if self.store is not None:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                del os.environ[name]  # the user's profile, region and endpoint must not be used
            os.environ.update(KEYS)
            with self._doing("starting an S3 server"), defer_signals():
                self.store.start()
                self.folder.make_bucket(self.store)
            self.output.note(f"The table is at {self.folder.table}, in an S3 server of the demo.")
        if self.broker is not None:
            with self._doing("starting Kafka"), defer_signals():
                self.broker.start()
        make_key(self.folder)
        self.folder.write_config(self.server.dsn, self.store, self.broker)
        project = load(self.folder.config)
        if not os.environ.get(JARS_VARIABLE) and not any(Path.home().glob(".ivy2*/jars/io.delta_*")):
            self.output.note("Spark first fetches Delta's jars (about 90 MB, once); this may take some minutes.")
        with self.runtime.open_session(_short_lived(project, self.folder)) as spark, raise_interrupt_on_signal():
            self._chapter(1, "A Delta table of customers, and the first part of its history")
            self._commit(spark, history.BEFORE)
            self._chapter(2, f"To PostgreSQL: a copy of version {history.COPIED_VERSION}, then the changes since then")
            self._replicate(spark, project)
            self._show_events(history.EVENTFUL[0])
            self._chapter(3, "More commits to the Delta table")
            self._commit(spark, history.LATER)
            self._chapter(4, f"Catching up, at most {WINDOW_COMMITS} commits at a time")
            self._replicate(spark, project)
            self._show_events(history.EVENTFUL[1])
            self._chapter(5, "Live: commits while `deltarelay run --follow` is running")
            self._follow(spark, project)
            self._show_events(history.EVENTFUL[2])
            self._chapter(6, "The audit trail: every change since version 0, and proof that nothing was altered")
            trail = self._audit(spark, project)
            self._chapter(7, "Are they equal?")
            with self._doing("comparing"):
                verified = self._verify(spark, project)
                source, target = read_source(spark, self.folder.table), read_target(self.server.dsn)
        with suppress(OSError):
            self.folder.warehouse.rmdir()
        topic = self._topic_result(verified, source)
        result = self._result(verified[PIPELINE], source == target, len(target.rows), trail, topic)
        self.output.note("")
        print_comparison(self.output, source, target)
        columns = f"{len(source.rows):,} rows of {len(source.columns)} columns, compared value by value"
        self._verdict(result.verified and result.compared, columns)
        if topic is not None:
            events = f"{topic.events:,} events, {topic.distinct:,} different ones"
            self._verdict(
                topic.verified and topic.compared, f"the rows that result from the events of {TOPIC} ({events})"
            )
        self.server.detach()
        if self.broker is not None:
            self.broker.detach()
        print_next_steps(self.output, self.folder, result)
        return result

    # ── steps ───────────────────────────────────────────────────────────────────────────────

    def _commit(self, spark: SparkSession, commits: Sequence[history.Commit]) -> None:
        for commit in commits:
            self.version += 1
            line = f"{self.version:>4}  {commit.operation:<13} {commit.story}"
            with self._doing(line):
                rows = history.write(spark, self.folder.table, commit)
            self.output.note(line if rows is None else f"{line:<66}{rows:>6,} row{'s' if rows != 1 else ''}")

    def _replicate(self, spark: SparkSession, project: Project) -> None:
        for name in self.targets:
            if name == EVENTS:
                self.output.note(f"  and to Kafka: each change since version 0 is an event of the topic {TOPIC}")
            with self._doing("reading the table's log") as status:

                def report(step: Step, name: str = name, status: Status | None = status) -> None:
                    if name == PIPELINE:
                        self.steps.append(step)
                    self.output.note(format_step(step))
                    if status is not None and step.last < step.until:
                        status.update(plain_text(f"version {step.last + 1} of {step.until}"))

                self.runtime.build_pipeline(project, name, spark).run(progress=report)

    def _show_events(self, keys: Sequence[int]) -> None:
        """The new events of these customers, beside their rows in PostgreSQL."""
        if self.broker is None:
            return
        from infra.demo.topic import TopicReader, format_events

        if self.reader is None:
            self.reader = TopicReader(self.broker.bootstrap_servers, TOPIC)
        events = self.reader.new()
        self.output.note(f"\n  {len(events):,} new events in the topic; those of some customers:")
        for line in format_events(events, keys, read_target(self.server.dsn)):
            self.output.note(line)

    def _follow(self, spark: SparkSession, project: Project) -> None:
        followed: dict[str, FollowedPipeline] = {}
        try:
            with self._doing("starting to follow"):
                for name in self.targets:
                    followed[name] = FollowedPipeline(self.runtime.build_pipeline(project, name, spark))
                while any(one.handle.status().state in ("starting", "catching_up") for one in followed.values()):
                    time.sleep(0.05)
            for commit in history.LIVE:
                self._commit(spark, [commit])
                written = time.monotonic()
                for name, one in followed.items():
                    with self._doing("waiting for the change"):
                        seconds = round(one.wait_for(self.version) - written, 2)
                    self.live_seconds[name].append(seconds)
                    self.output.note(f"      in {self.targets[name]:<10} {seconds:.1f} s after its commit")
        finally:
            for one in followed.values():
                one.handle.stop()

    def _audit(self, spark: SparkSession, project: Project) -> TrailResult:
        with self._doing("writing the trail"):
            self.runtime.build_pipeline(project, TRAIL, spark).run(
                progress=lambda step: self.output.note(format_step(step))
            )
        trail = open_trail(project)
        self.output.note(f"\n  Its events of customer {history.AUDITED}:")
        with self._doing("querying the trail"):
            for line in format_history(trail, history.AUDITED):
                self.output.note(line)
        with self._doing("recomputing every hash"):
            found = verify_trail(trail)
        verdict = "intact" if found.intact else "NOT INTACT"
        self.output.note(
            f"\n  `deltarelay audit verify` reports: {verdict}, signed through version {found.sealed_version}: "
            f"{found.events:,} events of {found.records} commits"
        )
        return TrailResult(
            intact=found.intact and found.sealed_version == self.version,
            sealed_version=found.sealed_version,
            records=found.records,
            events=found.events,
            path=trail.path,
            verify=shlex.join([*own_command(), "audit", "verify", "--config", shorten(self.folder.config)]),
        )

    def _verify(self, spark: SparkSession, project: Project) -> dict[str, bool]:
        verified = {}
        for name, target in self.targets.items():
            found = self.runtime.build_pipeline(project, name, spark).verify()
            verdict = "equal" if found.equal else "DIFFERENT"
            of = f" of {target}" if self.broker is not None else ""
            self.output.note(
                f"  `deltarelay verify` reports{of}: {verdict} at version {found.version}, {found.target_rows:,} rows"
            )
            verified[name] = found.equal and found.version == self.version
        self.output.note("  Compared independently, all rows read by Spark and from PostgreSQL:")
        return verified

    def _topic_result(self, verified: dict[str, bool], source: Side) -> TopicResult | None:
        if self.broker is None or self.reader is None:
            return None
        from infra.demo.topic import compute_rows, write_consumer

        events, brokers = self.reader.events, self.broker.bootstrap_servers
        distinct = len({event.id for event in events})
        self.reader.close()
        write_consumer(self.folder.consumer)
        return TopicResult(
            verified=verified[EVENTS],
            compared=compute_rows(events, source.columns) == source and distinct == len(events),
            events=len(events),
            distinct=distinct,
            live_seconds=tuple(self.live_seconds[EVENTS]),
            topic=TOPIC,
            bootstrap_servers=brokers,
            consume=shlex.join([shorten(Path(sys.executable)), shorten(self.folder.consumer), brokers, TOPIC]),
        )

    def _result(
        self, verified: bool, compared: bool, rows: int, trail: TrailResult, topic: TopicResult | None
    ) -> DemoResult:
        folder, windows = self.folder, [step for step in self.steps if step.kind == "window"]
        psql = "psql" if shutil.which("psql") else str(self.server.psql)
        socket = self.server.socket_folder
        return DemoResult(
            equal=verified and compared and trail.intact and (topic is None or (topic.verified and topic.compared)),
            verified=verified,
            compared=compared,
            version=self.version,
            rows=rows,
            windows=len(windows),
            inserts=sum(step.applied.inserts for step in windows),
            updates=sum(step.applied.updates for step in windows),
            deletes=sum(step.applied.deletes for step in windows),
            live_seconds=tuple(self.live_seconds[PIPELINE]),
            directory=str(folder.path),
            table=folder.table,
            config=str(folder.config),
            dsn=self.server.dsn,
            psql=shlex.join([psql, "-h", str(socket), "-p", "5432", "-U", "postgres", "postgres"]),
            stop=shlex.join([*own_command(), "demo", "--stop", "--directory", shorten(folder.path)]),
            seconds=round(time.monotonic() - self.began, 1),
            trail=trail,
            kafka=topic,
        )

    # ── output ─────────────────────────────────────────────────────────────────────────────────────────────

    def _chapter(self, number: int, title: str) -> None:
        self.output.note(f"\n{number}. {title}", style="bold")

    @contextmanager
    def _doing(self, text: str) -> Iterator[Status | None]:
        """On a terminal show a spinner before the text while the block runs."""
        console = self.output.progress_console
        if console is None:
            yield None
            return
        with console.status(plain_text(text.removeprefix("  "))) as status:
            yield status

    def _verdict(self, equal: bool, compared: str) -> None:
        self.output.line(
            f"{'EQUAL' if equal else 'DIFFERENT'}: {compared}", style="bold green" if equal else "bold red"
        )


def _short_lived(project: Project, folder: DemoFolder) -> Project:
    """Spark settings for half a minute of work on small tables: thorough compilation of queries would take longer."""
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(folder.warehouse),
    }
    return project.model_copy(update={"spark": project.spark.model_copy(update={"conf": settings})})
