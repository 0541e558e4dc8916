"""The contract that every sink fulfils, and the guard that keeps erased rows out of it."""
