"""What changed: windows of whole commits, their net effect per key, and changes of the schema."""
