"""Which rows belong to the people of the requests."""
