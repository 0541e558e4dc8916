"""Deleting a person everywhere: requests, what they reach, the run that erases, what is left, and the certificate."""
