"""Encryption of columns under keys of people: destroying a key erases the values in every copy at once."""
