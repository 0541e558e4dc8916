"""Lists every problem of the topics before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from cdf.changes.schema_diff import printed_alike
from cdf.errors import TargetNotReady
from cdf.sink import Inspection, Source
from connectors.kafka import topics
from connectors.kafka.event_format import EventFormat, check_schema
from connectors.kafka.state.position import State, read_state
from connectors.kafka.target import KafkaTarget
from connectors.kafka.topics import Topic

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange

__all__ = [
    "check_topics",
    "find_evolution_problem",
    "find_lane_problems",
    "find_state_problems",
    "find_topic_problems",
    "inspect_topics",
    "read_existing_state",
]


def read_existing_state(target: KafkaTarget, existing: Mapping[str, Topic]) -> State:
    """Read the state from the position topic; an empty one if that topic does not exist."""
    if target.position_topic not in existing:
        return State()
    return read_state(target.cluster, target.position_topic, target.topic)


def inspect_topics(target: KafkaTarget, source: Source, existing: Mapping[str, Topic]) -> Inspection:
    """``existing``: the topics as ``KafkaTarget.describe_topics`` returns them. Raises KafkaFault."""
    problems = check_schema(source.schema, source.key, target.format)
    ddl: list[str] = []
    for name in target.written_topics:
        if name in existing:
            continue
        if target.new_topic is None:
            problems.append(f"topic {name} does not exist: create it, or set `create:` in the sink")
        else:
            ddl.append(f"create topic {name}")
    state, position_problems = State(), list[str]()
    if target.position_topic in existing:
        position_problems = topics.find_position_topic_problems(existing[target.position_topic])
        problems += position_problems
        state = read_existing_state(target, existing)
    else:
        ddl.append(f"create topic {target.position_topic}")
    topic = existing.get(target.topic)
    problems += find_insync_problems(target, existing)
    if state.version is not None or not position_problems:
        problems += find_state_problems(target, state, topic, source.key)
    problems += find_lane_problems(target, state, source.pipeline)
    warnings: list[str] = []
    if topic is not None:
        topic_problems, warnings = find_topic_problems(target, topic)
        problems += topic_problems
    warnings += [
        f"the user may not read the settings of {name} (DescribeConfigs), so they are not checked"
        for name, description in existing.items()
        if not description.config
    ]
    return Inspection(state.position, tuple(problems), tuple(ddl), tuple(warnings))


def check_topics(target: KafkaTarget, source: Source) -> Mapping[str, Topic]:
    """Return the topics that exist. Raises TargetNotReady with every problem, and KafkaFault."""
    existing = target.describe_topics()
    inspection = inspect_topics(target, source, existing)
    if inspection.problems:
        raise TargetNotReady(
            f"{target.topic} cannot be written: " + "; ".join(inspection.problems),
            hint="`deltarelay plan` shows this list without starting a run",
            problems=list(inspection.problems),
        )
    return existing


def find_insync_problems(target: KafkaTarget, existing: Mapping[str, Topic]) -> list[str]:
    found = (topics.find_insync_problem(existing[name]) for name in target.written_topics if name in existing)
    return [problem for problem in found if problem is not None]


def find_state_problems(target: KafkaTarget, state: State, topic: Topic | None, key: tuple[str, ...]) -> list[str]:
    """Compare the recorded state with the topic as it is and with the configured key. Raises KafkaFault."""
    problems = []
    if state.key not in (None, key):
        problems.append(
            f"{target.topic} was written with the key ({', '.join(state.key or ())}): with another key, changes of a row "
            "would go to other partitions. Set that key, or use a new topic"
        )
    if state.pending is not None and state.pending.form != target.form:
        problems.append(
            f"{target.topic} has a partly written window in the form `{state.pending.form}`, but `{target.form}` is "
            "configured: finish the window with the former settings"
        )
    if topic is not None and state.partitions is not None and state.partitions != topic.partitions:
        problems.append(
            f"{target.topic} had {state.partitions} partitions and has {topic.partitions}: later changes of a key would go "
            "to another partition than its earlier ones. Use a new topic"
        )
    is_new = state.version is None and state.pending is None
    offsets = [] if topic is None else topics.read_offsets(target.cluster, topic)
    if is_new and any(high for _, high in offsets):
        problems.append(
            f"{target.topic} has records, but {target.position_topic} has no position for it: another application wrote "
            "them, or the position was lost. Use a new topic, or `deltarelay position adopt` if the position was lost"
        )
    has_events = any(progress.events for progress in state.lane_progress.values())
    is_recreated = topic is not None and state.topic_id not in (None, topic.id)
    is_emptied = topic is not None and has_events and not any(high for _, high in offsets)
    if (topic is None and not is_new) or is_recreated or is_emptied:
        problems.append(
            f"{target.topic} was deleted or recreated after events were written: these are lost. Use a new topic"
        )
    return problems


def find_lane_problems(target: KafkaTarget, state: State, pipeline: str) -> list[str]:
    if state.lanes is None or state.lanes == target.lanes:
        return []
    remedy = f"`deltarelay position set {state.version} -p {pipeline}` continues with {target.lanes} lanes from there"
    if state.pending is not None or state.version is None:
        kind = "window" if state.version is not None else "load"
        remedy = f"the {kind} in progress must be finished with that number first"
    return [
        f"{target.topic} was written with {state.lanes} lanes, but {target.lanes} are configured: "
        f"set lanes: {state.lanes}; {remedy}"
    ]


def find_topic_problems(target: KafkaTarget, topic: Topic) -> tuple[list[str], list[str]]:
    """Return the problems of the topic's settings, and warnings."""
    problems, warnings = [], []
    if topic.config and target.is_net and (not topic.is_compacted or topic.has_retention):
        policy = topic.config.get("cleanup.policy")
        problems.append(
            f"{topic.name} has cleanup.policy={policy}: changes: net requires compact, otherwise rows are lost"
        )
    if topic.config and not target.is_net and topic.is_compacted:
        warnings.append(
            f"{topic.name} is compacted: only the last event of each key is kept (changes: net writes no more than that)"
        )
    if topic.replicas > 1 and topic.min_insync_replicas < 2:
        warnings.append(f"{topic.name} has min.insync.replicas=1: events may be lost if one broker fails")
    elif topic.replicas == 1:
        warnings.append(f"{topic.name} has one replica: its events are lost if the broker is lost")
    return problems, warnings


def find_evolution_problem(format: EventFormat, change: SchemaChange, key: Collection[str]) -> str | None:
    """Return why events cannot follow the schema change; None if they can."""
    from connectors.kafka.types import has_json_form

    after, before = change.after, change.before
    if after is not None and not has_json_form(after.dataType):
        return "its type has no form in an event that keeps every value"
    if before is None or before.name not in key:
        return None
    if after is None or after.name != before.name:
        return "it belongs to the key"
    # With schemas, the key's text contains the type
    has_same_text = not format.schemas and printed_alike(before.dataType, after.dataType)
    if before.dataType != after.dataType and not has_same_text:
        return "the text of the key would change, so that consumers would see another key"
    return None
