"""One table: what the brokers and librdkafka report, in our words.

Only the error's name is taken over. Where a task fails the name crosses to the driver inside of Spark's own message.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cdf.errors import CdfError, ConfigError, Fenced, RowRejected, SinkError, SinkUnavailable, TargetNotReady

__all__ = ["KafkaFault", "fault_of", "from_task", "in_words", "is_fenced"]

_MARK = "DELTARELAY_KAFKA"
_MARKED = re.compile(rf"{_MARK} (\w+)")
# The rest of the text may hold a setting's value
_SETTING = re.compile(r'property:? "?([\w.]+)')
UNTAKEN = "_INVALID_ARG"
_FENCED = {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}


class KafkaFault(Exception):
    """Stands for the client's exception, by its name alone."""

    def __init__(self, name: str, *, about: str | None = None) -> None:
        """``about``: the setting that the client does not take."""
        super().__init__(f"{_MARK} {name}")
        self.name = name
        self.about = about

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaFault, (self.name,)


class _Fault(NamedTuple):
    names: str
    kind: type[CdfError]
    says: str
    hint: str


# {doing}: "writing events". {name}: the error's name.
_FAULTS = (
    _Fault(" ".join(sorted(_FENCED)), Fenced, "another runner has taken over; this one writes nothing more ({name})",
           "let the other runner finish; if it is gone, run again"),
    _Fault("_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE",
           TargetNotReady, "Kafka refused the login ({name})",
           "check security.protocol, sasl.mechanism, user and password of the connection"),
    _Fault("_SSL", TargetNotReady, "Kafka cannot be reached as the connection's TLS settings demand ({name})",
           "ssl.ca.location has to name the authority that signed the brokers' certificates"),
    _Fault("TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
           "GROUP_AUTHORIZATION_FAILED",
           TargetNotReady, "the user lacks a right needed for {doing} ({name})",
           "allow it Write, Describe and DescribeConfigs on the topics (Create, where they are to be made; Read, for "
           "verify), Read as well on the position topic, and Write and Describe on the transactional ids that begin with "
           "`deltarelay.`"),
    _Fault("UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION TOPIC_EXCEPTION UNKNOWN_TOPIC_ID",
           TargetNotReady, "{doing}: a topic or a partition of it is not there ({name})",
           "`deltarelay plan` names what is missing: create the topic, or set create: in the sink"),
    _Fault("MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE", RowRejected,
           "{doing}: an event is larger than the topic's max.message.bytes ({name})",
           "raise max.message.bytes of the topic; rejects: dead_letter sets such events aside"),
    _Fault("INVALID_RECORD POLICY_VIOLATION", RowRejected, "{doing}: the broker refuses a record ({name})",
           "look at the topic's settings and the cluster's policies"),
    _Fault("INVALID_TRANSACTION_TIMEOUT", TargetNotReady,
           "the brokers allow no transaction as long as the sink's transaction.timeout.ms ({name})",
           "lower transaction.timeout.ms under `client:`, or raise the brokers' transaction.max.timeout.ms"),
    _Fault("_RESOLVE", SinkUnavailable, "the names of the brokers cannot be resolved ({name})",
           "check bootstrap_servers, and the brokers' advertised.listeners"),
    _Fault("", SinkUnavailable, "Kafka is not available for {doing} ({name})",
           "nothing is lost: run again when the brokers can be reached"),
    _Fault("other", SinkError, "{doing} failed ({name})", "run with --debug for the trace"),
)  # fmt: skip
_BY_NAME = {name: fault for fault in _FAULTS[:-2] for name in fault.names.split()}
_FOR_NOW, _OTHER = _FAULTS[-2:]
_PASSING = {
    "_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_WAIT_COORD", "_STATE",
    "_INCONSISTENT", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_DESTROY", "_RETRY", "_FATAL",
    "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    "NETWORK_EXCEPTION", "CONCURRENT_TRANSACTIONS", "BROKER_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR",
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING",
    "THROTTLING_QUOTA_EXCEEDED", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "REPLICA_NOT_AVAILABLE", "NOT_CONTROLLER",
}  # fmt: skip


def fault_of(error: BaseException) -> KafkaFault:
    """From any exception of the client's. A fenced producer's ``flush`` hides the error behind a SystemError."""
    if isinstance(error, KafkaFault):
        return error
    if isinstance(error, SystemError) and error.__cause__ is not None:
        return fault_of(error.__cause__)
    about: Any = error.args[0] if error.args else None
    if not hasattr(about, "name"):
        return KafkaFault(type(error).__name__)
    setting = _SETTING.search(about.str()) if about.name() == UNTAKEN else None
    return KafkaFault(about.name(), about=setting and setting[1])


def from_task(error: BaseException) -> KafkaFault | None:
    """What a task's fault was, found in the text of Spark's exception."""
    found = _MARKED.search(str(error))
    return None if found is None else KafkaFault(found[1])


def is_fenced(fault: KafkaFault) -> bool:
    return fault.name in _FENCED


def in_words(fault: KafkaFault, doing: str) -> CdfError:
    if fault.name == UNTAKEN:
        return ConfigError(
            "the Kafka client does not take the connection's settings" + (f": {fault.about}" if fault.about else ""),
            hint="look at `security` and `client`; a SASL protocol needs a mechanism, and librdkafka's names count",
            condition=fault.name,
        )
    row = _BY_NAME.get(fault.name) or (_FOR_NOW if fault.name in _PASSING else _OTHER)
    return row.kind(row.says.format(doing=doing, name=fault.name), hint=row.hint, condition=fault.name)
