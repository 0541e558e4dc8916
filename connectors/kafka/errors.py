"""Maps errors of the brokers and of librdkafka to errors of this package: one table.

Only the name of an error is used. When a task fails, the name reaches the driver inside the text of Spark's exception.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from cdf.errors import CdfError, ConfigError, Fenced, RowRejected, SinkError, SinkUnavailable, TargetNotReady

__all__ = [
    "KafkaFault",
    "build_fenced_error",
    "find_task_fault",
    "is_fenced",
    "to_cdf_error",
    "to_fault",
    "translate_faults",
]

_MARK = "DELTARELAY_KAFKA"
_MARKED = re.compile(rf"{_MARK} (\w+)")
# The rest of the text may contain the value of a setting
_SETTING = re.compile(r'property:? "?([\w.]+)')
_INVALID_SETTING = "_INVALID_ARG"
_FENCED = {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}


class KafkaFault(Exception):
    """An error of the Kafka client, reduced to its name."""

    def __init__(self, name: str, *, about: str | None = None) -> None:
        """``about``: the name of the setting that the client rejects."""
        super().__init__(f"{_MARK} {name}")
        self.name = name
        self.about = about

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaFault, (self.name,)


class _Mapping(NamedTuple):
    names: str
    error: type[CdfError]
    message: str
    hint: str


# {doing}: "writing events". {name}: the name of the error.
_MAPPINGS = (
    _Mapping(" ".join(sorted(_FENCED)), Fenced, "another runner has taken over; this one writes nothing more ({name})",
             "let the other runner finish; if it has ended, run again"),
    _Mapping("_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE",
             TargetNotReady, "Kafka refused the login ({name})",
             "check security.protocol, sasl.mechanism, user and password of the connection"),
    _Mapping("_SSL", TargetNotReady, "cannot connect to Kafka with the TLS settings of the connection ({name})",
             "ssl.ca.location must name the certificate of the authority that signed the brokers' certificates"),
    _Mapping("TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
             "GROUP_AUTHORIZATION_FAILED",
             TargetNotReady, "the user lacks a right needed for {doing} ({name})",
             "grant Write, Describe and DescribeConfigs on the topics (Create, if topics are to be created; Read, for "
             "verify and erasure), also Read on the position topic, and Write and Describe on the transactional ids "
             "that begin with `deltarelay.`"),
    _Mapping("UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION TOPIC_EXCEPTION UNKNOWN_TOPIC_ID",
             TargetNotReady, "{doing} failed: a topic or one of its partitions does not exist ({name})",
             "`deltarelay plan` shows what is missing: create the topic, or set create: in the sink"),
    _Mapping("MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE", RowRejected,
             "{doing} failed: an event is larger than max.message.bytes of the topic ({name})",
             "raise max.message.bytes of the topic, or set rejects: dead_letter to record such events in another topic"),
    _Mapping("INVALID_RECORD POLICY_VIOLATION", RowRejected, "{doing} failed: the broker refuses a record ({name})",
             "check the settings of the topic and the policies of the cluster"),
    _Mapping("INVALID_TRANSACTION_TIMEOUT", TargetNotReady,
             "the brokers do not allow transactions as long as transaction.timeout.ms of the sink ({name})",
             "lower transaction.timeout.ms under `client:`, or raise transaction.max.timeout.ms of the brokers"),
    _Mapping("_RESOLVE", SinkUnavailable, "the names of the brokers cannot be resolved ({name})",
             "check bootstrap_servers, and advertised.listeners of the brokers"),
    _Mapping("", SinkUnavailable, "{doing} failed: Kafka is not available ({name})",
             "no data is lost: run again when the brokers can be reached"),
    _Mapping("other", SinkError, "{doing} failed ({name})", "run with --debug to see the stack trace"),
)  # fmt: skip
_BY_NAME = {name: mapping for mapping in _MAPPINGS[:-2] for name in mapping.names.split()}
_UNAVAILABLE, _OTHER = _MAPPINGS[-2:]
_TRANSIENT = {
    "_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_WAIT_COORD", "_STATE",
    "_INCONSISTENT", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_DESTROY", "_RETRY", "_FATAL",
    "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    "NETWORK_EXCEPTION", "CONCURRENT_TRANSACTIONS", "BROKER_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR",
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING",
    "THROTTLING_QUOTA_EXCEEDED", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "REPLICA_NOT_AVAILABLE", "NOT_CONTROLLER",
}  # fmt: skip


def to_fault(error: BaseException) -> KafkaFault:
    """Return the fault for any exception of the client. A SystemError hides the error when a fenced producer flushes."""
    if isinstance(error, KafkaFault):
        return error
    if isinstance(error, SystemError) and error.__cause__ is not None:
        return to_fault(error.__cause__)
    cause: Any = error.args[0] if error.args else None
    if not hasattr(cause, "name"):
        return KafkaFault(type(error).__name__)
    setting = _SETTING.search(cause.str()) if cause.name() == _INVALID_SETTING else None
    return KafkaFault(cause.name(), about=setting and setting[1])


def find_task_fault(error: BaseException) -> KafkaFault | None:
    """Return the fault that made a task fail, found in the text of Spark's exception; None for another cause."""
    found = _MARKED.search(str(error))
    return None if found is None else KafkaFault(found[1])


def is_fenced(fault: KafkaFault) -> bool:
    return fault.name in _FENCED


def to_cdf_error(fault: KafkaFault, doing: str) -> CdfError:
    """``doing``: what failed, such as ``writing events``."""
    if fault.name == _INVALID_SETTING:
        return ConfigError(
            "the Kafka client rejects a setting of the connection" + (f": {fault.about}" if fault.about else ""),
            hint="check `security` and `client`: a SASL protocol needs a mechanism; use librdkafka's names of properties",
            condition=fault.name,
        )
    mapping = _BY_NAME.get(fault.name) or (_UNAVAILABLE if fault.name in _TRANSIENT else _OTHER)
    message = mapping.message.format(doing=doing, name=fault.name)
    return mapping.error(message, hint=mapping.hint, condition=fault.name)


@contextlib.contextmanager
def translate_faults(doing: str) -> Iterator[None]:
    """Raise a CdfError instead of a KafkaFault, without the fault in the chain."""
    try:
        yield
        return
    except KafkaFault as fault:
        error = to_cdf_error(fault, doing)
    raise error


def build_fenced_error(target: str) -> Fenced:
    return Fenced(
        f"another runner has taken over {target}; this one writes nothing more",
        hint="let the other runner finish; if it has ended, run again",
        target=target,
    )
