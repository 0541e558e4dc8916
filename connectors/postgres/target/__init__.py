"""The target table: its columns and constraints, its definition in SQL, and schema drift."""
