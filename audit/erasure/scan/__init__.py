"""The search for identifiers of erased people in files, of any format."""
