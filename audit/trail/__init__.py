"""A trail: its Delta tables, the ledger, its lease, values taken out of it."""
