"""``python -m tools.reference`` writes the pages; ``--check`` exits with 1 if one of them is not current."""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from tools.reference.compatibility import compatibility_page
from tools.reference.configuration import configuration_page
from tools.reference.errors import errors_page
from tools.reference.metrics import metrics_page
from tools.reference.python_api import python_page
from tools.reference.table_features import feature_page

REPOSITORY = Path(__file__).parents[2]


def proof_hash() -> str:
    """By which an auditor recognises the stand-alone verifier of this release."""
    return f"{sha256((REPOSITORY / 'audit' / 'proof.py').read_bytes()).hexdigest()}  proof.py\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/errors.md": errors_page,
    "reference/compatibility.md": compatibility_page,
    "reference/configuration.md": configuration_page,
    "reference/metrics.md": metrics_page,
    "reference/python.md": python_page,
    "reference/table-features.md": feature_page,
    "audit/proof-sha256.txt": proof_hash,
}


def main(arguments: list[str]) -> int:
    outdated = []
    for name, page in PAGES.items():
        file, text = REPOSITORY / "docs" / name, page()
        if "--check" not in arguments:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            outdated.append(name)
    if outdated:
        print(f"not current: {', '.join(outdated)}; run `make references`", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
