"""Our own tables in the schema ``deltarelay``: position, lease, progress, run history, dead letters."""
