"""The target table: its columns and constraints, their definition in SQL, and schema drift."""
