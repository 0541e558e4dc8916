"""The run that erases: deletes, purges, and keeps to the retention of each table."""
