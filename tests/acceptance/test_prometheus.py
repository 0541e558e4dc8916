"""Metrics as a real Prometheus has them: scraped from a follower, and from node-exporter for a run that ends."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline, wait_for
from tests.acceptance.in_process import Command, here
from tests.fixtures.fix_prometheus import (
    PrometheusPrograms,
    find_port,
    run_node_exporter,
    run_prometheus,
    write_config,
)

__all__ = ["here"]

FOLDER = Path(__file__).parents[2] / "infra" / "deploy" / "prometheus"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
MAY_BE_EMPTY = ("deltarelay_unanchored_commits", "deltarelay_erasures_overdue")
"""There is no audit trail and no block ``erasure`` here."""
VARIABLES = {"$pipeline": "customers", "$__rate_interval": "16s"}
"""As Grafana fills them in: the second is the step of a panel over some hours, 15 s, and the 1 s between two scrapes."""
ROWS = {"delete customers": 1.0, "insert customers": 1.0, "load customers": 3.0, "update customers": 1.0}


def get(port: int, path: str) -> tuple[int, str]:
    """→ status and text; 0 while nothing listens"""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def fill_in(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    assert "$" not in query
    return query


def test_a_real_prometheus_scrapes_a_follower_and_answers_every_panel(
    project: Project,
    database: Database,
    spark: SparkSession,
    here: Command,
    prometheus_programs: PrometheusPrograms,
) -> None:
    path, began = str(project.folder / "source"), time.time()
    create_source(spark, path)
    change(spark, path, "insert into {t} values (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    textfiles = project.folder / "textfiles"
    textfiles.mkdir()
    project.write({"customers": pipeline(path)}, rest="metrics: {textfile: textfiles/deltarelay.prom}")
    assert here("run").code == 0
    written = (textfiles / "deltarelay.prom").read_text()
    assert prometheus_programs.check("check", "metrics", text=written) == (0, "")
    change(
        spark,
        path,
        "insert into {t} values (4, 'd', 4)",
        "update {t} set name = 'x' where id = 1",
        "delete from {t} where id = 2",
    )

    port = find_port()
    with run_node_exporter(prometheus_programs, textfiles, project.folder / "node-exporter.log") as exporter:
        config = write_config(project.folder, {"follower": port, "node": exporter}, FOLDER / "alerts.yaml")
        code, said = prometheus_programs.check("check", "config", config)
        assert code == 0, said
        with run_prometheus(prometheus_programs, project.folder, config) as prometheus:
            # The run has ended; its file is served by node-exporter
            rows = 'deltarelay_rows_total{job="node"}'
            loaded = {**dict.fromkeys(ROWS, 0.0), "load customers": 3.0}
            wait_for(lambda: prometheus.query(rows) == loaded, "the text file is scraped")
            wait_for(lambda: prometheus.query("node_textfile_scrape_error") == {"": 0.0}, "it has no fault")

            follower = project.start("run", "--follow", "--interval-seconds", "0.1", "--metrics-port", str(port))
            assert follower.until(lambda: get(port, "/readyz")[1], "it listens") == "not ready: customers\n"
            lag = 'deltarelay_lag_versions{job="follower"}'

            def expect(query: str, values: dict[str, float]) -> None:
                """Also if a scrape was too slow on a busy machine, and its values are missing for a second."""
                follower.until(lambda: prometheus.query(query) == values, f"{query} is {values}")

            expect(lag, {"customers": 3.0})
            expect(lag, {"customers": 0.0})
            assert get(port, "/readyz") == (200, "ok\n")
            assert database.position() == 4

            # The totals of the run before are continued
            expect('deltarelay_rows_total{job="follower"}', ROWS)
            expect('deltarelay_window_seconds_count{job="follower",step="total"}', {"customers total": 2.0})
            expect('deltarelay_state{job="follower"} == 1', {"customers up_to_date": 1.0})
            expect(rows, ROWS)  # the follower writes the text file too
            code, said = prometheus_programs.check("check", "metrics", text=get(port, "/metrics")[1])
            assert (code, said) == (0, "")

            empty = [query for query in QUERIES if not prometheus.query_since(fill_in(query), began)]
            assert [query for query in empty if not any(name in query for name in MAY_BE_EMPTY)] == []
            assert len(empty) == len(MAY_BE_EMPTY)
            applied = fill_in(next(query for query in QUERIES if "rows_total" in query))
            # A panel has a value for each second: the last one may be from before the last scrape
            follower.until(lambda: max(prometheus.query_since(applied, began)) > 0, "the panel shows the rows")
            (variable,) = [one["query"] for one in DASHBOARD["templating"]["list"] if one["name"] == "pipeline"]
            assert variable == "label_values(deltarelay_state, pipeline)"
            assert prometheus.ask("label/pipeline/values", **{"match[]": "deltarelay_state"}) == ["customers"]

            (group,) = prometheus.ask("rules")["groups"]
            assert [rule["health"] for rule in group["rules"]] == ["ok"] * 10
            assert "firing" not in [rule["state"] for rule in group["rules"]]
            follower.terminate()
            assert follower.done().code == 0
            follower_is_up = 'up{job="follower"}'
            wait_for(lambda: prometheus.query(follower_is_up) == {"": 0.0}, "the follower is gone")


def test_promtool_finds_a_faulty_name(prometheus_programs: PrometheusPrograms) -> None:
    text = "# HELP rows Rows.\n# TYPE rows counter\nrows 1\n"
    code, said = prometheus_programs.check("check", "metrics", text=text)
    assert (code, '"_total" suffix' in said) == (3, True), said
