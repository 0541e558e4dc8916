"""The search for what is left of a person in a topic."""
