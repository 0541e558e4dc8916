"""What earlier releases have left behind: a later one has to go on with it."""
