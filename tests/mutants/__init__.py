"""Named one-line faults in the product, and a runner that shows for each that the tests find it.

``*.toml`` hold the list, one file for each part of the product. ``python -m tests.mutants --help`` runs it;
``tests/unit/test_mutants.py`` checks that every entry still fits the code.
"""
