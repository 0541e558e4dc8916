"""The folder below the temporary one, whose name anybody can tell beforehand."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from cdf.errors import ConfigError
from infra.temporary import private_folder, private_path


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_made_for_its_user_alone() -> None:
    assert private_folder() == private_path()
    private_path().chmod(0o755)  # as Spark makes it
    assert private_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["a link", "a file", "a folder of another user", "a folder for all", "for a group"])
def test_what_another_user_has_put_there_is_refused(
    temporary: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = private_path()
    match planted:
        case "a link":
            (temporary / "elsewhere").mkdir()
            folder.symlink_to(temporary / "elsewhere")
        case "a file":
            folder.touch()
        case "a folder of another user":
            other = os.getuid() + 1
            monkeypatch.setattr(os, "getuid", lambda: other)
            private_path().mkdir()
        case _:
            folder.mkdir()
            folder.chmod(0o770 if planted == "for a group" else 0o777)
    with pytest.raises(ConfigError, match="the temporary folder") as refused:
        private_folder()
    assert "TMPDIR" in (refused.value.hint or "")
