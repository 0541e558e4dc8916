"""Catch up when a table has a new version, then compare both sides. Guide: docs/deploy/airflow.md"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import Asset, AssetWatcher, dag
from deltarelay_airflow import DeltaRelayOperator, DeltaVersionTrigger

TABLE = "/lake/orders"
orders = Asset(
    "orders", uri=f"file://{TABLE}", watchers=[AssetWatcher(name="orders", trigger=DeltaVersionTrigger(TABLE))]
)


@dag(
    schedule=[orders],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(hours=2)},
)
def deltarelay():
    catch_up = DeltaRelayOperator(task_id="catch_up", pipelines=["orders"])
    verify = DeltaRelayOperator(task_id="verify", command="verify", pipelines=["orders"])
    catch_up >> verify


deltarelay()
