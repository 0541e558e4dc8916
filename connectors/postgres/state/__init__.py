"""Our own tables in the schema ``deltarelay``: run history, dead letters, moved positions."""
