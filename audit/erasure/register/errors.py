"""Why a register cannot be used."""

from __future__ import annotations

from cdf.errors import ConfigError

__all__ = ["RegisterIncomplete", "RegisterMismatch", "RegisterMissing"]


class RegisterMissing(ConfigError):
    """The database is reachable and has no register there: it was never created, was dropped, or the schema is misspelt."""

    code = "erasure_register_missing"


class RegisterIncomplete(ConfigError):
    """Tables of the register are missing."""

    code = "erasure_register_incomplete"


class RegisterMismatch(ConfigError):
    """The register is not the one that the configuration names, or its marks were made with other keys."""

    code = "erasure_register_mismatch"
