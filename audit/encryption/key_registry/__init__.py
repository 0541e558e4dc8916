"""The keys of people, in a PostgreSQL database of their own: one key for each person and class of columns.

    root key  ─▶ epoch key       ─▶ keys of people       each is wrapped by the key before it
    file, KMS    table ``shard``    table ``key``

A person has a random token. Keyed hashes of identifiers lead to it; each such link has a MAC. The links of a person are
deleted with the last key: from then on no identifier leads to the token, and a person who signs up again gets a new one. (An
older backup still contains the link. It leads a holder of today's lookup key to the token, but to no key.)

Losing this database erases everyone, and a backup from before an erasure brings that person's key back. Therefore a
**rotation** begins a new **epoch**: active keys are wrapped again, under a new epoch key and another root key, and the
former epoch key is destroyed. When the former root key is destroyed as well, every older backup is unreadable.
"""

from audit.encryption.key_registry.errors import RegistryIncomplete
from audit.encryption.key_registry.registry import Registry, registry_database
from audit.encryption.key_registry.results import (
    DestroyedKeys,
    Epoch,
    KeyState,
    Person,
    PersonKey,
    Reading,
    RegistryStatus,
    States,
)

__all__ = [
    "DestroyedKeys",
    "Epoch",
    "KeyState",
    "Person",
    "PersonKey",
    "Reading",
    "Registry",
    "RegistryIncomplete",
    "RegistryStatus",
    "States",
    "registry_database",
]
