"""``python -m tools.compat``: runs the parts of the tests on each pair of Spark and Delta.

Each pair has an environment of its own in ``build/compat``. The environment chooses: ``ONLY=3.5`` runs this pair,
``PART=S3`` this part, ``QUICK=1`` only the smoke, whose result is not kept. The exit code is 1 where a test failed.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from infra.spark_pairs import PAIRS, Pair
from tools.compat.parts import PARTS, Outcome, read_limits, read_outcomes, write_outcomes

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "build" / "compat"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def make_environment(pair: Pair) -> Path:
    """An environment with this checkout and the pair. → its Python"""
    folder = FOLDER / pair.line
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = [f"pyspark=={pair.spark}", f"delta-spark=={pair.delta}"]
    install = [*PIP, "--python", str(python), "install", "--no-compile", "--editable", f"{REPOSITORY}[test]", *packages]
    subprocess.run(install, check=True)
    return python


def run_part(pair: Pair, part: str, python: Path) -> Outcome:
    report = FOLDER / f"{pair.line}-{part.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    left_out = [f"--deselect={test}" for tests in read_limits().get(pair.line, {}).values() for test in tests]
    # PySpark up to 4.1 leaves sockets to the garbage collector
    quiet = ["-Wignore::ResourceWarning", "-Wignore::pytest.PytestUnraisableExceptionWarning"]
    pytest = [str(python), "-m", "pytest", "-q", "-p", "no:xdist", *quiet, f"--junitxml={report}"]
    command = [*pytest, f"--basetemp={report.with_suffix('')}", *left_out, *PARTS[part]]
    environment = {name: value for name, value in os.environ.items() if name not in ("ONLY", "PART", "QUICK")}
    subprocess.run(command, cwd=REPOSITORY, env={**environment, "CI": "true"}, check=False)
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if report.exists():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            counts = {name: number + int(suite.get(name, 0)) for name, number in counts.items()}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    today = dt.datetime.now(dt.UTC).date().isoformat()
    # Nothing that passed: pytest did not come so far
    return Outcome(pair.spark, pair.delta, passed, failed or int(not passed), counts["skipped"], today)


def main() -> int:
    only, part, quick = (os.environ.get(name, "") for name in ("ONLY", "PART", "QUICK"))
    pairs = [pair for pair in PAIRS if not only or pair.line in only.split(",")]
    parts = [name for name in PARTS if name == (part or name)][: 1 if quick else None]
    if not pairs or not parts:
        known = ", ".join(pair.line for pair in PAIRS)
        print(f"ONLY takes {known}; PART takes {', '.join(PARTS)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = False
    for pair in pairs:
        began = time.monotonic()
        python = make_environment(pair)
        name = f"Spark {pair.spark}, Delta {pair.delta}"
        print(f"{name}: made the environment in {time.monotonic() - began:.0f} s", flush=True)
        for part in parts:
            began = time.monotonic()
            outcome = run_part(pair, part, python)
            print(f"{name}: {part}: {outcome} ({time.monotonic() - began:.0f} s)", flush=True)
            failed = failed or outcome.failed > 0
            if not quick:
                outcomes = read_outcomes()
                outcomes.setdefault(pair.line, {})[part] = outcome
                write_outcomes(outcomes)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
