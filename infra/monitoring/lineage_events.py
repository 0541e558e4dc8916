"""Builds OpenLineage events with the classes of openlineage-python. Import it late: it needs the extra ``lineage``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import attr
from openlineage.client import event_v2 as ol
from openlineage.client.facet_v2 import (
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from cdf.errors import CdfError
from connectors.dataset_names import TargetDataset
from infra.monitoring.source_columns import SourceColumn

__all__ = ["EventFactory", "Parent", "create_run_id"]

PRODUCER = f"urn:deltarelay:{version('deltarelay')}"


@attr.define
class VersionsFacet(InputDatasetFacet):
    """The versions of the Delta table whose changes were read; the standard facet `version` has the last one."""

    first: int
    last: int


@attr.define
class ChangesFacet(OutputDatasetFacet):
    """Rows of the target by kind of change; of ``outputStatistics`` only their sum."""

    inserts: int
    updates: int
    deletes: int


@dataclass(frozen=True, slots=True)
class Parent:
    job: str
    run: str


def create_run_id() -> str:
    return str(generate_new_uuid())


@dataclass(frozen=True, slots=True)
class EventFactory:
    namespace: str

    def build_event(
        self,
        kind: str,
        at: dt.datetime,
        job: str,
        run: str,
        *,
        streaming: bool = False,
        parent: Parent | None = None,
        error: CdfError | None = None,
        inputs: Sequence[ol.InputDataset] = (),
        outputs: Sequence[ol.OutputDataset] = (),
    ) -> ol.RunEvent:
        """``kind``: START, COMPLETE, FAIL or ABORT."""
        facets: dict[str, RunFacet] = {}
        if parent is not None:
            facets["parent"] = parent_run.ParentRunFacet(
                run=parent_run.Run(runId=parent.run), job=parent_run.Job(self.namespace, parent.job)
            )
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=f"{error.message} ({error.code})", programmingLanguage="PYTHON"
            )
        job_type = job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if streaming else "BATCH", integration="DELTARELAY", jobType="REPLICATION"
        )
        return ol.RunEvent(
            eventType=ol.RunState[kind],
            eventTime=at.astimezone(dt.UTC).isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            run=ol.Run(run, facets=facets),
            job=ol.Job(self.namespace, job, facets={"jobType": job_type}),
            inputs=list(inputs),
            outputs=list(outputs),
        )


def build_input(
    name: tuple[str, str],
    columns: Sequence[SourceColumn],
    *,
    first: int,
    last: int,
    rows: int | None = None,
) -> ol.InputDataset:
    """The source: ``first`` to ``last`` are the versions that were read."""
    facets: dict[str, Any] = {"version": dataset_version_dataset.DatasetVersionDatasetFacet(str(last))}
    if columns:
        facets["schema"] = _build_schema([(one.name, one.type) for one in columns])
    read: dict[str, Any] = {"deltarelay_versions": VersionsFacet(first, last)}
    if rows is not None:
        read["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=rows)
    return ol.InputDataset(*name, facets=facets, inputFacets=read)


def build_output(
    target: TargetDataset,
    source: tuple[str, str],
    columns: Sequence[SourceColumn],
    *,
    rows: int | None = None,
    changes: tuple[int, int, int] | None = None,
) -> ol.OutputDataset:
    """The target, with the column of the source that each of its columns was copied from."""
    facets: dict[str, Any] = {}
    replicated = [(one, name) for one in columns if (name := target.rename_column(one.name)) is not None]
    if replicated:
        facets["schema"] = _build_schema([(name, one.type) for one, name in replicated])
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={name: _build_lineage(source, one) for one, name in replicated}
        )
    written: dict[str, Any] = {}
    if rows is not None:
        written["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
    if changes is not None:
        written["deltarelay_changes"] = ChangesFacet(*changes)
    return ol.OutputDataset(target.namespace, target.name, facets=facets, outputFacets=written)


def build_verified(target: TargetDataset, *, equal: bool) -> ol.InputDataset:
    """The target of a comparison, which is read as the source is."""
    assertion = data_quality_assertions_dataset.Assertion(assertion="equal_to_source", success=equal)
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet([assertion])
    return ol.InputDataset(target.namespace, target.name, inputFacets={"dataQualityAssertions": facet})


def build_erased(namespace: str, name: str, *, rows: int | None) -> ol.OutputDataset:
    """A table from which rows of people were erased."""
    facets: dict[str, Any] = {} if rows is None else {"deltarelay_changes": ChangesFacet(0, 0, rows)}
    return ol.OutputDataset(namespace, name, outputFacets=facets)


def _build_schema(columns: Sequence[tuple[str, str]]) -> schema_dataset.SchemaDatasetFacet:
    return schema_dataset.SchemaDatasetFacet([schema_dataset.SchemaDatasetFacetFields(*one) for one in columns])


def _build_lineage(source: tuple[str, str], column: SourceColumn) -> column_lineage_dataset.Fields:
    identity = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")
    return column_lineage_dataset.Fields(
        [
            column_lineage_dataset.InputField(*source, field=name, transformations=[identity])
            for name in dict.fromkeys((column.name, *column.former_names))
        ]
    )
