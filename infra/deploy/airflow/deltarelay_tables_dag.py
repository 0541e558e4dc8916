"""200 tables: every 15 minutes one run for each batch of the pipelines that are behind. Guide: docs/deploy/airflow.md"""

import subprocess
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from deltarelay_airflow import PROGRAM, DeltaRelayOperator, read_entries, select_pipelines

CONFIG = "/etc/deltarelay/deltarelay.yaml"
BATCH = 20
"""Pipelines of one run: Spark starts once for all of them."""
AT_ONCE = 4


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(hours=2)},
)
def deltarelay_tables():
    @task
    def find_work() -> list[list[str]]:
        """Without a JVM. A pipeline that cannot be read or was stopped is run as well: its run says why."""
        status = subprocess.run([PROGRAM, "status", *select_pipelines(CONFIG, [])], stdout=subprocess.PIPE, check=False)
        idle = ("up_to_date", "paused")
        names = [entry["pipeline"] for entry in read_entries(status.stdout) if entry["state"] not in idle]
        return [names[first : first + BATCH] for first in range(0, len(names), BATCH)]

    DeltaRelayOperator.partial(task_id="catch_up", config=CONFIG, max_active_tis_per_dag=AT_ONCE).expand(
        pipelines=find_work()
    )


deltarelay_tables()
