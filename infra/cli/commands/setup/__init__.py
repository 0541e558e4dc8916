"""Commands that prepare or check this machine and the configuration."""
