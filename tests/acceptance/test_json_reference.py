"""``docs/reference/json.md`` names every field that a document can have."""

from __future__ import annotations

import dataclasses
import re

import pytest

from audit.anchors.base import AnchorFailure
from audit.checkpoints.publish import SignedCheckpoint
from audit.encryption.backup import BackupMade
from audit.encryption.key_registry import Epoch, RegistryStatus
from audit.encryption.restore_check import BackupChecked
from audit.erasure.access.report import AccessReport, HeldRows, Identifier, PastRows, Recipient, TableHeld
from audit.erasure.find.plan import Plan as ErasurePlan
from audit.erasure.find.plan import PlannedSink, PlannedTable
from audit.erasure.register.records import RequestStatus
from audit.erasure.run.runner import ErasureReport
from audit.erasure.scan.results import Checked, ScanResult, Unseen
from audit.erasure.scan.results import Finding as ErasureFinding
from audit.reconciliation.results import Mismatch, NotCompared, Reconciled
from audit.trail.compaction import Compaction
from audit.verification import Finding as TrailFinding
from audit.verification import TrailVerification
from cdf.errors import CdfError
from cdf.pipeline.move_position import Move
from cdf.results import Followed, FollowStatus, Plan, PlannedWindow, RunResult
from cdf.sink import Conflicts, DeadLetter, PositionRecord, RunRecord
from cdf.source.table import FeedEnabled, FeedStatus
from cdf.verify.verify import Difference, Verification
from infra import output
from infra.cli.commands.audit.encrypt import TrailEncrypted
from infra.cli.commands.audit.signing.anchors import AnchoredCheckpoint, TrailAnchors
from infra.cli.commands.audit.sinks import ChangeCoverage, SinkCoverage
from infra.cli.commands.deadletter import DeadLetters, Dropped, Replayed
from infra.cli.commands.erase.setup.init import ErasureRegisterMade
from infra.cli.commands.erase.setup.split_keys import KeysSplit
from infra.cli.commands.position import PositionShown
from infra.cli.commands.runs import PipelineRuns
from infra.cli.commands.upgrade import SchemaUpgrade, Upgrade
from infra.cli.files import KeyMade
from infra.diagnostics.doctor import Diagnosis, Finding
from infra.diagnostics.preflight import ConnectionCheck
from infra.diagnostics.status import PipelineStatus
from infra.diagnostics.storage_settings import StorageSettings
from infra.s3.lock.check import LockTable
from infra.s3.lock.entries import LockedTable, LockEntries, OpenEntry
from infra.s3.lock.repair import Forgotten, LockRepair, RepairedEntry
from infra.s3.lock.table import Deviation, LockTableCreated
from infra.scaffold import Scaffold
from infra.scaffold_tables import ProposedTable, TablesScaffold
from infra.spark.jars import Jar, JarSet
from tests.acceptance.commands import REPOSITORY

REFERENCE = (REPOSITORY / "docs" / "reference" / "json.md").read_text()
SECTIONS = {
    "### `plan`": (Plan, PlannedWindow),
    "### `run`": (RunResult, Conflicts),
    "### `run --follow`": (FollowStatus, Followed),
    "### `verify`": (Verification, Difference),
    "### `status`": (PipelineStatus,),
    "### `runs`": (PipelineRuns, RunRecord),
    "### `deadletter list`": (DeadLetters,),
    "## `deadletter show`": (DeadLetters, DeadLetter),
    "## `deadletter replay`": (Replayed,),
    "## `deadletter drop`": (Dropped,),
    "### `validate --connect`": (ConnectionCheck,),
    "## `init`": (Scaffold,),
    "### `init 'FOLDER/*'`": (TablesScaffold, ProposedTable),
    "## `doctor`": (Diagnosis, Finding),
    "## `jars check`, `jars fetch`": (JarSet, Jar),
    "## `upgrade`": (Upgrade, SchemaUpgrade),
    "## `position show`": (PositionShown, PositionRecord),
    "## `position set`, `position rewind`, `position adopt`": (Move,),
    "## `storage show`": (StorageSettings,),
    "## `storage lock create`, `storage lock check`": (LockTableCreated, LockTable, Deviation),
    "## `storage lock list`": (LockEntries, LockedTable, OpenEntry),
    "## `storage lock repair`": (LockRepair, RepairedEntry),
    "## `storage lock forget`": (Forgotten,),
    "## `audit keygen`": (KeyMade,),
    "## `audit verify`": (TrailVerification, TrailFinding),
    "## `audit checkpoint`": (SignedCheckpoint, AnchorFailure),
    "## `audit optimize`": (Compaction,),
    "## `audit encrypt`": (TrailEncrypted,),
    "## `audit anchors`": (TrailAnchors, AnchoredCheckpoint, AnchorFailure),
    "## `audit reconcile`": (Reconciled, Mismatch, NotCompared),
    "## `audit sinks`": (ChangeCoverage, SinkCoverage),
    "## `erase keygen`": (KeyMade,),
    "## `erase split-keys`": (KeysSplit,),
    "## `erase init`": (ErasureRegisterMade,),
    "## `erase plan`": (ErasurePlan, PlannedTable, PlannedSink),
    "## `erase run`": (ErasureReport,),
    "## `erase status`": (RequestStatus,),
    "## `keys status`": (RegistryStatus,),
    "## `keys rotate`": (Epoch,),
    "## `keys backup`": (BackupMade,),
    "## `keys restore-check`": (BackupChecked,),
    "## `erase scan`": (ScanResult, ErasureFinding, Checked, Unseen),
    "## `erase access-report`": (AccessReport, Identifier, TableHeld, HeldRows, Recipient, PastRows),
    "## `feed enable`": (FeedEnabled,),
    "## `feed status`": (FeedStatus,),
}


def section(title: str) -> str:
    """The text under a heading, up to the next heading of any level."""
    return re.split(r"^#", REFERENCE.partition(f"\n{title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_of_a_result_is_described(title: str) -> None:
    named = set(re.findall(r"`(\w+)`", section(title)))
    for kind in SECTIONS[title]:
        fields = {field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")}
        assert fields - {"pipeline"} <= named, f"{kind.__name__} has fields that json.md does not name"


def test_every_row_of_a_table_is_a_field() -> None:
    """The other way round: nothing is described that no result has."""
    for title, kinds in SECTIONS.items():
        described = [name for line in section(title).splitlines() if line.startswith("| `") for name in _names(line)]
        fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
        assert set(described) <= fields, title


def _names(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", row.split("|")[1])


def test_the_error_and_the_exit_codes_are_described() -> None:
    assert {
        name for line in section("## `error`").splitlines() if line.startswith("| `") for name in _names(line)
    } == set(CdfError("", fact=1).to_dict())
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section("## Exit codes"), flags=re.MULTILINE)}
    names = ("DONE", "FAILED", "USAGE", "DIFFERENCE", "TEMPORARY", "INTERRUPTED")
    assert codes == {getattr(output, name) for name in names}
