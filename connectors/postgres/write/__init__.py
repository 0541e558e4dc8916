"""Applying a staged window: its SQL statements, the strategies to execute them, and dead letters."""
