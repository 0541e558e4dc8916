"""The erasure run: its steps, in their order, each of which may be interrupted and continued."""
