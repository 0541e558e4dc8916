"""The audit trail: tables, hashes, ledger, checkpoints, encryption, verification, queries, reports and erasure."""
