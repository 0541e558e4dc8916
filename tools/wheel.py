"""``python -m tools.wheel`` builds the wheel into ``dist`` and tries it as a user has it.

In a new environment, from an empty folder: first without extras, then with ``[spark,demo]`` the whole demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("deltarelay", "cdf", "connectors", "audit", "infra")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
CONFIGURATION = """version: 1
connections: {warehouse: {kind: postgres, dsn: "postgresql://relay@warehouse/lake"}}
pipelines: {customers: {source: {table: /data/customers, key: [id]}, sink: {connection: warehouse, table: customers}}}
"""
IMPORT = """
import sys, deltarelay
assert "site-packages" in deltarelay.__file__, deltarelay.__file__
for name in ("ChangeFeed", "PostgresSink", "KafkaSink", "DeltaAuditSink", "CdfError", "session"):
    getattr(deltarelay, name)
print(deltarelay.__version__)
"""


class Failure(Exception):
    """The wheel is not what a user needs."""


def build() -> Path:
    folder = REPOSITORY / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, REPOSITORY], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_files(wheel: Path) -> int:
    """All files of the packages, the templates among them, and nothing else. → their number"""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(REPOSITORY).as_posix()
        for package in PACKAGES
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if missing := sorted(wanted - found):
        raise Failure(f"missing in the wheel: {', '.join(missing)}")
    if foreign := sorted(found - wanted):
        raise Failure(f"in the wheel, but not in the packages: {', '.join(foreign)}")
    return len(found)


class Environment:
    """A new virtual environment, and an empty folder in which its programs run."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "environment" / "bin"
        self.folder = root / "empty"
        self.folder.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.bin.parent], check=True)

    def install(self, requirement: str) -> None:
        # Compiling everything takes longer than what a try imports
        subprocess.run([*PIP, "--python", self.bin / "python", "install", "--no-compile", requirement], check=True)

    def run(self, *command: str, code: int = 0, says: Sequence[str] = ()) -> str:
        """Run a program of the environment. Raises Failure unless it ends with ``code`` and prints all of ``says``."""
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
            capture_output=True,
            text=True,
            check=False,
        )
        printed = done.stdout + done.stderr
        unsaid = [text for text in says if text not in printed]
        if done.returncode != code or unsaid:
            raise Failure(f"`{' '.join(command)}` ended with {done.returncode}, without {unsaid}:\n{printed}")
        return done.stdout.strip()


def try_without_extras(environment: Environment, wheel: Path) -> None:
    environment.install(str(wheel))
    version = environment.run("python", "-c", IMPORT)
    environment.run("deltarelay", "--version", says=[f"deltarelay {version}"])
    environment.run("deltarelay", "--help", says=["Usage: deltarelay"])
    (environment.folder / "deltarelay.yaml").write_text(CONFIGURATION)
    environment.run("deltarelay", "validate", says=["deltarelay.yaml is valid"])
    for command in ("run", "demo"):
        environment.run("deltarelay", command, code=2, says=["PySpark is not installed", "deltarelay[spark]"])
    (environment.folder / "deltarelay.yaml").unlink()
    if left := list(environment.folder.iterdir()):
        raise Failure(f"left in the folder: {left}")


def try_demo(environment: Environment, wheel: Path) -> str:
    environment.install(f"{wheel}[spark,demo]")
    try:
        said = environment.run("deltarelay", "demo", says=["reports: equal at version", "EQUAL"])
    finally:
        environment.run("deltarelay", "demo", "--stop")  # its server would go on running
    return next(line for line in said.splitlines() if line.startswith("EQUAL"))


def main() -> int:
    try:
        wheel = build()
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {check_files(wheel)} files")
        with tempfile.TemporaryDirectory(prefix="deltarelay-wheel-") as root:
            environment = Environment(Path(root))
            try_without_extras(environment, wheel)
            print("without extras: --version, --help, validate and import deltarelay work; run and demo name [spark]")
            print(f"with [spark,demo]: the demo ends with {try_demo(environment, wheel)}")
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
