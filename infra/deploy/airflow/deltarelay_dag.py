"""Catch up every 15 minutes, then compare both sides. Guide: docs/deploy/airflow.md"""

import subprocess
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

CONFIG = "/etc/deltarelay/deltarelay.yaml"


def run_deltarelay(command: str) -> None:
    """75 is temporary and is retried; every other failure is final, 3 (a difference was found) among them."""
    process = subprocess.Popen(["/opt/deltarelay/bin/deltarelay", command, "--config", CONFIG])
    try:
        code = process.wait()
    except BaseException:  # the task times out: let the running window finish
        process.terminate()
        process.wait(timeout=60)
        raise
    if code == 75:
        raise AirflowException(f"deltarelay {command} failed temporarily")
    if code != 0:
        raise AirflowFailException(f"deltarelay {command} ended with exit code {code}")


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=1)},
)
def deltarelay():
    @task
    def catch_up():
        run_deltarelay("run")

    @task
    def verify():
        run_deltarelay("verify")

    catch_up() >> verify()


deltarelay()
