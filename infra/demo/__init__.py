"""The demo: a Delta table with a history, a PostgreSQL server, and the replication between them, on this machine."""

from infra.demo.folder import StopResult, stop_demo
from infra.demo.results import DemoResult
from infra.demo.run import run_demo
from infra.demo.screen import Runtime

__all__ = ["DemoResult", "Runtime", "StopResult", "run_demo", "stop_demo"]
