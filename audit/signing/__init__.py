"""Checkpoints: signed notes over the ledger of a trail."""
