"""The demo: a Delta table with a history, a real PostgreSQL, and the replication between them, on this machine."""

from infra.demo.folder import StopResult, stop_demo
from infra.demo.run import DemoResult, run_demo

__all__ = ["DemoResult", "StopResult", "run_demo", "stop_demo"]
