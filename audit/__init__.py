"""The room of the audit trail: so far the bytes, hashes, signatures and proofs that it is going to stand on."""
