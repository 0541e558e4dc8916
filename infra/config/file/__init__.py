"""The configuration file as text: YAML with positions, references to secrets, former setting names, collected problems."""
