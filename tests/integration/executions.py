"""What Spark shows of the queries of a block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Executions"]


class Executions:
    """What Spark's pages and event log show of the queries of a block, and which files these have read."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._before = {number for number, _ in self._all()}

    def _all(self) -> Iterator[tuple[int, Any]]:
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        executions = self._spark._jsparkSession.sharedState().statusStore().executionsList()
        for at in range(executions.size()):
            yield executions.apply(at).executionId(), executions.apply(at)

    def plans(self) -> str:
        new = [one for number, one in self._all() if number not in self._before]
        assert new
        return "\n".join(f"{one.description()}\n{one.details()}\n{one.physicalPlanDescription()}" for one in new)

    def files_read(self, table: Path) -> int:
        store = self._spark._jsparkSession.sharedState().statusStore()
        count = 0
        for number in [number for number, _ in self._all() if number not in self._before]:
            values, nodes = store.executionMetrics(number), store.planGraph(number).allNodes()
            for node in (nodes.apply(at) for at in range(nodes.size())):
                if f"{table}]" in node.desc():
                    metrics = [node.metrics().apply(at) for at in range(node.metrics().size())]
                    found = [one.accumulatorId() for one in metrics if one.name() == "number of files read"]
                    count += sum(int(values.apply(one).replace(",", "")) for one in found)
        return count
