"""Which tables are refused, and how an error names their feature."""

from __future__ import annotations

import pytest

from cdf.changes.commits import Protocol
from cdf.errors import FeatureNotSupported
from cdf.source.table_features import KNOWN_FEATURES, check_features, translate_refusal

READERS = tuple(sorted(KNOWN_FEATURES))


@pytest.mark.parametrize(
    "protocol",
    [None, Protocol(1, 2), Protocol(2, 5), Protocol(3, 7, READERS, (*READERS, "anyWriterFeature", "rowTracking"))],
)
def test_a_table_that_this_reader_knows(protocol: Protocol | None) -> None:
    check_features(protocol, {"delta.enableChangeDataFeed": "true"}, "lake/t")


@pytest.mark.parametrize(
    ("protocol", "properties", "message"),
    [
        (
            Protocol(3, 7, ("oracle", "deletionVectors", "geospatial")),
            {},
            "lake/t needs the table feature geospatial, oracle, which deltarelay does not support",
        ),
        (Protocol(4, 7), {}, "lake/t needs reader version 4, which deltarelay does not support"),
        (
            Protocol(1, 7, (), ("redirectWriterOnly",)),
            {},
            "lake/t has the table feature redirectWriterOnly: its data are at another location, where deltarelay does not "
            "read them",
        ),
        (
            Protocol(3, 7, ("catalogManaged",), ("catalogManaged",)),
            {},
            "lake/t has the table feature catalogManaged: its newest commits are in a catalog, where deltarelay does not "
            "read them",
        ),
        (
            None,
            {"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"},
            "lake/t has coordinated commits (delta.coordinatedCommits.commitCoordinator…): its newest commits are with the "
            "coordinator, where deltarelay does not read them",
        ),
    ],
)
def test_a_table_that_it_does_not_know(protocol: Protocol | None, properties: dict[str, str], message: str) -> None:
    with pytest.raises(FeatureNotSupported) as caught:
        check_features(protocol, properties, "lake/t")
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'requires reader table feature(s) that are unsupported by Delta Lake "4.4.0": timeMachine, oracle.\n\tat org',
            "lake/t needs the table feature timeMachine, oracle, which the installed Delta Lake does not support",
        ),
        (
            "Kernel error: Unsupported: Feature 'timeMachine' is not supported",
            "lake/t needs the table feature timeMachine, which delta-rs does not support",
        ),
        (
            "Kernel error: Unsupported: Unsupported minimum reader version 9",
            "lake/t needs reader version 9, which delta-rs does not support",
        ),
        (
            "Max catalog version is required when loading a catalog-managed table. Use with_max_catalog_version().",
            "lake/t has the table feature catalogManaged: its newest commits are in a catalog, where deltarelay does not "
            "read them",
        ),
        ("no such file", None),
    ],
)
def test_a_feature_that_delta_or_delta_rs_refuses_is_named(said: str, message: str | None) -> None:
    found = translate_refusal(ValueError(said), "lake/t")
    assert (found and found.message) == message
