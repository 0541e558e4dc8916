"""The durable steps of an open sink."""
