"""``python -m tools.reference`` writes the pages; ``--check`` exits with 1 if one of them is not current."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools.reference.configuration import configuration_page
from tools.reference.errors import errors_page
from tools.reference.python_api import python_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "configuration.md": configuration_page,
    "python.md": python_page,
}


def main(arguments: list[str]) -> int:
    outdated = []
    for name, page in PAGES.items():
        file, text = FOLDER / name, page()
        if "--check" not in arguments:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            outdated.append(name)
    if outdated:
        print(f"not current: {', '.join(outdated)}; run `make references`", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
