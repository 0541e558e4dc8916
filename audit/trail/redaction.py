"""What goes into a ledger record: canonical JSON, and of a commit only what is nobody's data.

A ledger is kept for good; nothing in it can be forgotten. Delta writes predicates into its log with their literals, Spark
even without quotation marks, so that no grammar tells ``(name = Rose Ann)`` from columns. Of an expression is therefore
kept only what is known: names of the table's columns, words of SQL, operators; all else becomes ``?``. Of ``userMetadata``
five names are kept where it is a JSON object. Free text is not, nor a hash of it, which could be guessed: the hash of the
commit file, which is in the record, covers it.
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
    """RFC 8785, for null, booleans, integers within ±2^53, strings, lists and objects: one text for one value, UTF-8.

    Raises TypeError for anything else (floats too), ValueError for integers beyond and strings that are not Unicode.
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
            raise TypeError("the names of an object are strings")
        return {name: _sorted(value[name]) for name in sorted(value, key=lambda name: name.encode("utf-16-be"))}
    raise TypeError(f"{type(value).__name__} has no canonical form")


def parse_object(text: str | bytes | None) -> dict[str, Any]:
    """What somebody may have written as a JSON object; empty where it is none."""
    try:
        said = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


# ── userMetadata ─────────────────────────────────────────────────────────────────────────────────────────────────────

_TOLD = ("ticket", "purpose", "job", "run", "approver")
_TOLD_LENGTH = 200


def extract_reasons(user_metadata: str | None) -> dict[str, str]:
    """Who may know why: ticket, purpose, job, run and approver, as far as ``userMetadata`` is JSON and has them."""
    said = parse_object(user_metadata)
    # A ticket's number is often written as a number
    told = {name: said.get(name) for name in _TOLD if type(said.get(name)) in (str, int)}
    return {name: _unicode(str(value))[:_TOLD_LENGTH] for name, value in told.items() if value != ""}


def shorten_text(value: Any) -> str | None:
    """A name that somebody else has written: a text that JSON can hold, whatever it was."""
    return None if value is None else _unicode(str(value))[:_TOLD_LENGTH]


def _unicode(text: str) -> str:
    """JSON can write halves of characters, which no encoding has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ── parameters of an operation ───────────────────────────────────────────────────────────────────────────────────────


def redact_parameters(parameters: Mapping[str, Any], columns: Iterable[str] = ()) -> dict[str, Json]:
    """``operationParameters`` of a commit without anything that may be data; a parameter not known here is an expression.

    ``columns``: the names that the table's columns and their fields have or had, which expressions may keep.
    """
    clean = _cleaner(columns)
    return {
        name: _KINDS.get(name, _expression)(_decoded(value), clean)
        for name, value in parameters.items()
        if value is not None
    }


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _decoded(value: Any) -> Any:
    """Most values are JSON inside of a string."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _expression(value: Any, clean: Clean) -> Json:
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [clean(item) for item in value]
    return clean(value if isinstance(value, str) else json.dumps(value))


def _kept(value: Any, clean: Clean) -> Json:
    """Modes, names of columns and tables, versions, limits."""
    if isinstance(value, list):
        return [_kept(item, clean) for item in value]
    if isinstance(value, dict):
        return {_unicode(name): _kept(item, clean) for name, item in value.items()}
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) <= 2**53):
        return value
    return _unicode(str(value))


def _properties(value: Any, clean: Clean) -> Json:
    """Of table properties the names, and the values of Delta's own; a constraint of Delta's is an expression."""
    if not isinstance(value, dict):
        return _kept(value, clean) if isinstance(value, list) else _expression(value, clean)
    return {
        _unicode(name): (
            _kept(setting, clean)
            if name.startswith("delta.") and not name.startswith("delta.constraints.")
            else _expression(setting, clean)
        )
        for name, setting in value.items()
    }


def _columns(value: Any, clean: Clean) -> Json:
    """Columns as names, or as a schema has them: without their metadata, where comments and defaults are."""
    if isinstance(value, list):
        return [_columns(item, clean) for item in value]
    if isinstance(value, dict):
        return {name: _columns(item, clean) for name, item in value.items() if name in _OF_A_COLUMN}
    return _kept(value, clean)


def _clauses(value: Any, clean: Clean) -> Json:
    """Of a MERGE, or constraints: what kind or name, and an expression."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return [
            {name: (_kept if name in ("actionType", "name") else _expression)(item, clean)
             for name, item in clause.items() if name in ("actionType", "name", "predicate", "expr") and item is not None}
            for clause in value
        ]  # fmt: skip
    return _expression(value, clean)


_OF_A_COLUMN = _words(
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
_KINDS: Mapping[str, Callable[[Any, Clean], Json]] = {
    **dict.fromkeys(_KEPT, _kept),
    **dict.fromkeys(_words("column columns newSchema oldSchema"), _columns),
    **dict.fromkeys(
        _words("matchedPredicates notMatchedPredicates notMatchedBySourcePredicates constraints"), _clauses
    ),
    "properties": _properties,
}
"""By the names that Delta and delta-rs give them."""


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
# How long a list is, or of how many words a name, is nobody's business
_TIDY = (
    (re.compile(r"\?(?:[\s,.+\-*/%]*\?)+"), "?"),
    (re.compile(r"(^|[=<>(,]\s*)[-+]\s*\?"), r"\1?"),
    (re.compile(r"\b(in|inset)(\s*)\([^()]*\)", re.IGNORECASE), r"\1\2(?)"),
)


def redact_expression(text: str, columns: Iterable[str] = ()) -> str:
    """An SQL expression, as Spark, Delta or delta-rs write it, with ``?`` for all that is not known to be no data."""
    return _cleaner(columns)(text)


def _cleaner(columns: Iterable[str]) -> Clean:
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
        for untidy, tidy in _TIDY:
            out = untidy.sub(tidy, out)
        return out

    return clean


def _operand_after(word: str, before: str, operand: bool, call: bool) -> bool | None:
    """None: at this place the word can be data. Else whether it completes an operand: ``OR`` after ``=`` may be Oregon."""
    if word in _CONSTANTS or (word in _TYPES and before == "as"):
        return True
    if word in _AFTER_OPERANDS and operand:
        return word == "end"
    if (word in _FUNCTIONS and call) or (word in _BEFORE_OPERANDS and before not in _COMPARISONS):
        return False
    return None
