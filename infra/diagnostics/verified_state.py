"""What ``audit verify`` has verified of a trail, stored between two verifications."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.errors import ConfigError
from infra.output import Output

if TYPE_CHECKING:
    from audit.verification import TrailVerification, VerifiedState

__all__ = ["VerifiedStateFile"]


class VerifiedStateFile:
    """A file on the machine of the verifier, where the writers of the trail cannot change it.

    Its name depends on the location of the trail, so a trail that replaces another one is compared with the former one.
    """

    def __init__(self, folder: Path | None, trail_path: str) -> None:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
        location = trail_path if "://" in trail_path else str(Path(trail_path).resolve())
        self.file = (folder or home / "deltarelay/verified") / f"{sha256(location.encode()).hexdigest()[:32]}.json"

    def read(self) -> VerifiedState | None:
        """Return the state after the last verification; None if there was none."""
        from audit.verification import VerifiedState

        try:
            return VerifiedState.from_json(self.file.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.file} is not a state file of `audit verify`",
                hint="find out why, then remove it: the next verification will have no earlier state to compare with",
            ) from None

    def write(self, text: str, output: Output) -> None:
        """Replace the file; if that fails, print a note: the verification itself has succeeded."""
        temporary = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(text)
            temporary.replace(self.file)
        except OSError as error:
            output.note(f"the verified state cannot be stored in {self.file}: {error.strerror}")

    def report_replaced_trail(
        self, name: str, known: VerifiedState | None, found: TrailVerification, output: Output
    ) -> None:
        """Name the state file if the trail is not the one that was verified before."""
        if known is not None and known.origin != found.origin:
            output.note(
                f"{name}: if the trail was recreated on purpose, remove {self.file}, which belongs to the former trail"
            )
