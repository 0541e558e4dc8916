"""Content of ledger records: canonical JSON, and descriptions of commits without personal data.

A ledger is kept forever; nothing in it can be erased. Delta writes predicates with their literals into its log, Spark even
without quotation marks, so no grammar can distinguish ``(name = Rose Ann)`` from columns. Of an expression only known words
are therefore kept: names of the table's columns, SQL keywords, operators; everything else becomes ``?``. Of ``userMetadata``
five fields are kept if it is a JSON object. Free text is not kept, nor a hash of it, which could be guessed; the hash of the
commit file in the record covers it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

__all__ = [
    "Json",
    "canonical_json",
    "redact_expression",
    "redact_parameters",
    "parse_object",
    "shorten_text",
    "extract_reasons",
]

Clean: TypeAlias = Callable[[str], str]
Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"


# ── canonical JSON ───────────────────────────────────────────────────────────────────────────────────────────────────


def canonical_json(value: Any) -> bytes:
    """RFC 8785, for null, booleans, integers within ±2^53, strings, lists and objects: one text per value, in UTF-8.

    Raises TypeError for anything else (floats too), ValueError for larger integers and strings that are not Unicode.
    """
    return json.dumps(_sorted(value), ensure_ascii=False, separators=(",", ":")).encode()


def _sorted(value: Any) -> Json:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > 2**53:
            raise ValueError("an integer beyond 2^53 has no canonical form")
        return value
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("the field names of an object must be strings")
        return {name: _sorted(value[name]) for name in sorted(value, key=lambda name: name.encode("utf-16-be"))}
    raise TypeError(f"{type(value).__name__} has no canonical form")


def parse_object(text: str | bytes | None) -> dict[str, Any]:
    """Parse text from an untrusted source as a JSON object; empty where it is not one."""
    try:
        value = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# ── userMetadata ─────────────────────────────────────────────────────────────────────────────────────────────────────

_REASONS = ("ticket", "purpose", "job", "run", "approver")
_LARGEST_TEXT = 200


def extract_reasons(user_metadata: str | None) -> dict[str, str]:
    """Return ticket, purpose, job, run and approver, as far as ``userMetadata`` is a JSON object that has them."""
    metadata = parse_object(user_metadata)
    # A ticket's number is often written as a number
    reasons = {name: metadata.get(name) for name in _REASONS if type(metadata.get(name)) in (str, int)}
    return {name: _replace_surrogates(str(value))[:_LARGEST_TEXT] for name, value in reasons.items() if value != ""}


def shorten_text(value: Any) -> str | None:
    """Text of at most 200 characters that JSON can hold, from a value of unknown origin."""
    return None if value is None else _replace_surrogates(str(value))[:_LARGEST_TEXT]


def _replace_surrogates(text: str) -> str:
    """JSON can contain single surrogates, which have no encoding."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ── parameters of an operation ───────────────────────────────────────────────────────────────────────────────────────


def redact_parameters(parameters: Mapping[str, Any], columns: Iterable[str] = ()) -> dict[str, Json]:
    """Return ``operationParameters`` of a commit without anything that may be data. Unknown parameters count as expressions.

    ``columns``: present and former names of the table's columns and their fields, which expressions may keep.
    """
    clean = _make_cleaner(columns)
    return {
        name: _REDACTIONS.get(name, _redact_expression)(_decode(value), clean)
        for name, value in parameters.items()
        if value is not None
    }


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _decode(value: Any) -> Any:
    """Most values are JSON inside a string."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _redact_expression(value: Any, clean: Clean) -> Json:
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [clean(item) for item in value]
    return clean(value if isinstance(value, str) else json.dumps(value))


def _keep(value: Any, clean: Clean) -> Json:
    """Keep modes, names of columns and tables, versions, limits."""
    if isinstance(value, list):
        return [_keep(item, clean) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _keep(item, clean) for name, item in value.items()}
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) <= 2**53):
        return value
    return _replace_surrogates(str(value))


def _redact_properties(value: Any, clean: Clean) -> Json:
    """Keep the names of table properties, and the values of Delta's own properties; its constraints are expressions."""
    if not isinstance(value, dict):
        return _keep(value, clean) if isinstance(value, list) else _redact_expression(value, clean)
    return {
        _replace_surrogates(name): (
            _keep(setting, clean)
            if name.startswith("delta.") and not name.startswith("delta.constraints.")
            else _redact_expression(setting, clean)
        )
        for name, setting in value.items()
    }


def _redact_columns(value: Any, clean: Clean) -> Json:
    """Keep columns, as names or as a schema, without their metadata, which has comments and default values."""
    if isinstance(value, list):
        return [_redact_columns(item, clean) for item in value]
    if isinstance(value, dict):
        return {name: _redact_columns(item, clean) for name, item in value.items() if name in _COLUMN_FIELDS}
    return _keep(value, clean)


def _redact_clauses(value: Any, clean: Clean) -> Json:
    """Keep kind or name, and the redacted expression, of the clauses of a MERGE or of constraints."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return [
            {name: (_keep if name in ("actionType", "name") else _redact_expression)(item, clean)
             for name, item in clause.items() if name in ("actionType", "name", "predicate", "expr") and item is not None}
            for clause in value
        ]  # fmt: skip
    return _redact_expression(value, clean)


_COLUMN_FIELDS = _words(
    "column name type nullable position fields elementType containsNull keyType valueType valueContainsNull"
)
_KEPT = _words(
    """applyPurge auto batchId canMergeSchema canOverwriteSchema catalogTable clusterBy collectStats datetime
    defaultRetentionMillis domainMetadataRemovedCount epochId existed featureName ifExists incremental
    isDynamicPartitionOverwrite isFull isManaged isV1SaveAsTableOverwrite maxConcurrentTasks mode name
    newClusteringColumns newColumnPath newProtocol numFiles oldClusteringColumns oldColumnPath outputMode partitionBy
    partitionedBy position queryId replaceUsingCols retentionCheckEnabled source sourceFormat sourceVersion
    specifiedRetentionMillis status targetSize timestamp triggerName truncateHistory version zOrderBy"""
)
_REDACTIONS: Mapping[str, Callable[[Any, Clean], Json]] = {
    **dict.fromkeys(_KEPT, _keep),
    **dict.fromkeys(_words("column columns newSchema oldSchema"), _redact_columns),
    **dict.fromkeys(
        _words("matchedPredicates notMatchedPredicates notMatchedBySourcePredicates constraints"), _redact_clauses
    ),
    "properties": _redact_properties,
}
"""By the parameter names of Delta and delta-rs."""


# ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────────────

_CONSTANTS = frozenset(("true", "false", "null"))
_AFTER_OPERANDS = _words("and or is in inset like ilike rlike between escape as div when then else end")
_BEFORE_OPERANDS = frozenset(("not", "case", "when", "distinct"))
_FUNCTIONS = _words(
    """abs array_contains cast ceil coalesce concat contains current_date current_timestamp date_add date_format date_sub
    date_trunc datediff day endswith exists floor hash hour if isnan isnotnull isnull length lower ltrim md5 month nvl pmod
    round rtrim sha2 size startswith substring to_date to_timestamp trim trunc upper xxhash64 year"""
)
_TYPES = _words(
    """array bigint binary boolean byte char date decimal double float int integer long map short smallint string struct
    timestamp timestamp_ntz tinyint varchar"""
)
_COMPARISONS = ("<=>", "<=", ">=", "!=", "<>", "==", "=", "<", ">")
_SYMBOLS = (*_COMPARISONS, "(", ")", ",", ".", "+", "-", "*", "/", "%")
_TOKEN = (
    # Spark writes a column as name#12 or name#12L
    r"(?P<column>(?<!\w)`?(?:{columns})`?)(?:\#\d+L?)?(?!\w)"
    r"|(?P<quoted>x?'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z)|`[^`]*(?:`|\Z))"
    r"|(?P<word>\w+)|(?P<space>\s+)|(?P<symbol>{symbols})|(?P<other>.)"
)
# The length of a list, or the number of words in a name, is not kept
_MERGE_PLACEHOLDERS = (
    (re.compile(r"\?(?:[\s,.+\-*/%]*\?)+"), "?"),
    (re.compile(r"(^|[=<>(,]\s*)[-+]\s*\?"), r"\1?"),
    (re.compile(r"\b(in|inset)(\s*)\([^()]*\)", re.IGNORECASE), r"\1\2(?)"),
)


def redact_expression(text: str, columns: Iterable[str] = ()) -> str:
    """Return an SQL expression of Spark, Delta or delta-rs with ``?`` for every word that may be data."""
    return _make_cleaner(columns)(text)


def _make_cleaner(columns: Iterable[str]) -> Clean:
    names = sorted({re.escape(name) for name in columns if name}, key=len, reverse=True)
    pattern = _TOKEN.format(columns="|".join(names) or r"[^\s\S]", symbols="|".join(map(re.escape, _SYMBOLS)))
    tokens = re.compile(pattern, re.IGNORECASE | re.DOTALL)

    def clean(text: str) -> str:
        out, before, operand = "", "", False
        for token in tokens.finditer(text):
            kind, word = token.lastgroup, token[0].lower()
            if kind == "space":
                out += " "
                continue
            if kind == "column":
                shown, operand = token["column"], True
            elif kind == "symbol":
                shown, operand = token[0], word == ")"
            elif (
                kind == "word"
                and (after := _operand_after(word, before, operand, text[token.end() :][:1] == "(")) is not None
            ):
                shown, operand = token[0], after
            else:
                shown, operand = "?", True
            out, before = out + shown, word
        for pattern, placeholder in _MERGE_PLACEHOLDERS:
            out = pattern.sub(placeholder, out)
        return out

    return clean


def _operand_after(word: str, before: str, operand: bool, call: bool) -> bool | None:
    """None: the word can be data at this place. Otherwise whether it completes an operand: ``OR`` after ``=`` may be
    Oregon."""
    if word in _CONSTANTS or (word in _TYPES and before == "as"):
        return True
    if word in _AFTER_OPERANDS and operand:
        return word == "end"
    if (word in _FUNCTIONS and call) or (word in _BEFORE_OPERANDS and before not in _COMPARISONS):
        return False
    return None
