"""Makes a state as this release leaves it: its tables in PostgreSQL, trails and sources.

    python -m tests.upgrade.make_state tests/upgrade/state-0.1

Run once per release whose stored formats differ from those before, never again for the same one: the folder is what later
releases are held against (``tests/acceptance/test_upgrade.py``). Needs the demo's extra.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from audit.anchors.postgres import statements
from audit.signing.signer import Signer
from infra.embedded.postgres import EmbeddedPostgres, programs
from infra.output import DONE, TEMPORARY
from infra.s3.model import Storage
from infra.spark.session_builder import session

ARCHIVE, DUMP = "project.tar.gz", "state.sql"
PROJECT = "@PROJECT@"
"""Replaces, in the dump, the path of the project's folder, which the database stores in full."""
CONFIG = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: "${WAREHOUSE_DSN}"}
  trails:
    kind: delta_audit
    path: trails
    signing_key: "${file:audit.key}"
    anchors:
      - {kind: file, path: anchors}
      - {kind: postgres, connection: warehouse}
pipelines:
  orders:
    source: {table: tables/orders, key: [id], start: earliest}
    sink: {connection: warehouse, table: public.orders, rejects: dead_letter, reject_rows: true}
  customers:
    source: {table: tables/customers, key: [no]}
    sink: {connection: warehouse, table: public.customers}
  trail:
    source: {table: tables/customers, key: [no], start: earliest}
    sink: {connection: trails, table: customers}
erasure:
  state: {connection: warehouse}
  keys: {connection: warehouse, root_key: "${file:root.key}"}
  signing_key: "${file:erasure.key}"
  subjects:
    customer: {identifiers: {email: email, customer_id: exact}}
  tables:
    tables/customers:
      {subject: customer, path: customer_id, personal: [email], classes: {contact: [customer_id, email]}}
"""
FIRST = (
    "create table {orders} (id bigint, name string, amount decimal(10,2)) using delta"
    " tblproperties (delta.enableChangeDataFeed = true)",
    "insert into {orders} values (1, 'one', 1.10), (2, 'two', 2.20), (3, 'far too long', 3.30)",
    "create table {customers} (no long, customer_id long, email string, segment string) using delta"
    " tblproperties (delta.enableChangeDataFeed = true)",
    "insert into {customers} values (1, 7, 'anna@example.org', 'a'), (2, 8, 'bert@example.org', 'b'),"
    " (3, 9, 'cora@example.org', 'b')",
)
LATER = (
    "update {orders} set amount = 22.00 where id = 2",
    "delete from {orders} where id = 1",
    "alter table {customers} add column (note string)",
    "update {customers} set segment = 'c', note = 'moved' where no = 1",
)
REQUESTS = "id,email,requester\nDSR-1,bert@example.org,privacy desk\nDSR-2,cora@example.org,privacy desk\n"


def main(words: list[str]) -> int:
    out = Path(words[0])
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "project"
        (folder / "anchors").mkdir(parents=True)
        (folder / "deltarelay.yaml").write_text(CONFIG)
        (folder / "requests.csv").write_text(REQUESTS)
        Signer.generate("example.org/audit").write(folder / "audit.key")
        Signer.generate("example.org/erasure").write(folder / "erasure.key")
        with EmbeddedPostgres(Path(temporary) / "server") as server:
            leave_state(folder, server.dsn)
            dump = subprocess.run(
                [programs() / "pg_dump", "--no-owner", "--no-privileges", server.dsn],
                check=True,
                capture_output=True,
                text=True,
            )
        (out / DUMP).write_text(dump.stdout.replace(str(folder), PROJECT))
        for left in ("requests.csv", "erasure-plan.json"):
            (folder / left).unlink()
        with tarfile.open(out / ARCHIVE, "w:gz") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name)
    return 0


def psql(dsn: str, text: str) -> None:
    command = [programs() / "psql", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", dsn]
    subprocess.run(command, input=text, check=True, text=True, stdout=subprocess.DEVNULL)


def leave_state(folder: Path, dsn: str) -> None:
    tables = folder / "tables"

    def sql(*texts: str) -> None:
        for text in texts:
            spark.sql(text.format(orders=f"delta.`{tables}/orders`", customers=f"delta.`{tables}/customers`"))

    def deltarelay(*arguments: str, codes: tuple[int, ...] = (DONE,)) -> int:
        done = subprocess.run(
            [sys.executable, "-m", "infra.cli.main", *arguments],
            cwd=folder,
            env={**os.environ, "WAREHOUSE_DSN": dsn, "PYTHONPATH": str(Path.cwd())},
            check=False,
        )
        if done.returncode not in codes:
            raise SystemExit(f"deltarelay {' '.join(arguments)} ended with {done.returncode}")
        return done.returncode

    spark = session(app_name="state", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}, storage=Storage())
    psql(dsn, statements())
    psql(
        dsn,
        "create table public.orders (id bigint primary key, name text constraint short check (length(name) < 6),"
        " amount numeric(10,2))",
    )
    sql(*FIRST)
    deltarelay("keys", "new-root", "root.key")
    deltarelay("keys", "init")
    deltarelay("erase", "init")
    deltarelay("run")
    sql(*LATER)
    deltarelay("run")
    deltarelay("erase", "plan", "requests.csv")
    while deltarelay("erase", "run", "erasure-plan.json", "--purge-immediately", codes=(DONE, TEMPORARY)) == TEMPORARY:
        deltarelay("run")
    spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
