"""From rows of the change feed to events in a topic."""
