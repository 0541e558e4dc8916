"""How rows reach the target: staging, the applying statements, initial load and reload."""
