"""The access report: what is held on a person."""
