"""The configuration file: models, loading, secrets."""
