"""The target's rows in canonical form, for a comparison with the source."""
