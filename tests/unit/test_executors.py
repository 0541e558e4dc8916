"""What a failed job says about the Python on the executors, in the words of several releases of Spark."""

from __future__ import annotations

import pytest

from cdf.errors import ConfigError
from cdf.executors import explain_worker_failure
from cdf.read_errors import translate

FAILURES = {
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot": (
        "the executors have Python 3.12, and the driver has Python 3.11"
    ),
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 12) than that in driver 3.11, PySpark cannot": (
        "the executors have Python 3.12, and the driver has Python 3.11"
    ),
    'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=2, No such file or directory': (
        "the executors cannot start Python: there is no /opt/venv/bin/python"
    ),
    "ModuleNotFoundError: No module named 'connectors.postgres'": (
        "deltarelay is not installed on the executors (the Python of the executors): they cannot run a task of this pipeline"
    ),
    "ModuleNotFoundError: No module named 'pyarrow'": (
        "the module pyarrow is missing on the executors (the Python of the executors): "
        "they cannot run a task of this pipeline"
    ),
}


@pytest.mark.parametrize("text", FAILURES)
def test_a_python_that_cannot_run_tasks_is_one_error_that_names_the_setting(text: str) -> None:
    failure = RuntimeError(f"Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times\n{text}\n  at org")
    explained = explain_worker_failure(failure)
    assert isinstance(explained, ConfigError)
    assert explained.message == FAILURES[text]
    assert "PYSPARK_PYTHON" in str(explained.hint)
    # An executor that came later, on a machine that was not checked
    assert translate(failure, table="t", first=1, last=2).message == FAILURES[text]


def test_any_other_failure_is_not_about_python() -> None:
    assert explain_worker_failure(RuntimeError("Job aborted: java.lang.OutOfMemoryError")) is None
