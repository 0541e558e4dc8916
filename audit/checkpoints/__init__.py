"""Checkpoints: sign the ledger, publish the signed notes to the anchors, read them back."""
