"""Messages about a real pipeline: a brake, from the command to the message and its end, remembered beside the position."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline
from tests.acceptance.in_process import Command, here

__all__ = ["here"]


@pytest.fixture
def received() -> list[tuple[str, str]]:
    return []


def test_a_brake_sends_one_message_and_one_when_its_window_has_passed(
    project: Project, database: Database, spark: SparkSession, here: Command, received: list[tuple[str, str]]
) -> None:
    types: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append((body["title"], body["message"]))
            types.append(body["type"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    path = str(project.folder / "source")
    create_source(spark, path)
    change(spark, path, "insert into {t} select id, 'Zaphod-4711', 1 from range(12000)")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        notify = f"notify: {{urls: ['json://127.0.0.1:{server.server_port}/hook-4712']}}"
        project.write({"customers": pipeline(path)}, rest=notify)
        assert here("run").code == 0
        assert received == []
        change(spark, path, "delete from {t} where id < 9000")
        for _ in range(2):
            assert here("run").code == 3
        text = "the window 2..2 would delete 9,000 of 12,000 rows (75%), and brakes.max_delete_share is 0.5"
        assert received == [("deltarelay: customers: stopped by brake", text)]
        stored = database.value("select document->'monitoring'->'incidents' from deltarelay.controls")
        assert list(stored) == ["stopped_by_brake"]
        assert here("approve", "customers", "--window", "2..2", "--by", "maria").code == 0
        assert here("run").code == 0
        assert [title for title, _ in received[1:]] == ["deltarelay: customers: stopped by brake is over"]
        assert database.value("select document->'monitoring'->'incidents' from deltarelay.controls") == {}

        database.query("delete from public.customers where id = 10000")
        assert here("verify").code == 3
        title, text = received[-1]
        assert title == "deltarelay: customers: verify difference"
        assert text == "at version 2 the target differs from its source: 1 missing, 0 extra, 0 different"
        server.shutdown()
    assert types == ["failure", "success", "failure"]
    assert "Zaphod" not in str(received)
    assert "10000" not in str(received)
