"""The room of the audit trail: rows, ledger, proofs, queries, erasure. Empty until that capability lands."""
