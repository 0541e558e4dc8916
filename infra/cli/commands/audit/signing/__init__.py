"""Keys, checkpoints, anchors and proofs of trails."""
