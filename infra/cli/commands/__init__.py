"""The commands, one file for each; related commands share a package."""
