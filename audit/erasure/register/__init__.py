"""The register of erasures in PostgreSQL: requests, runs, steps, certificates."""
