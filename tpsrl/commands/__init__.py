"""One module a command. Each has DESCRIPTION, POSITIONAL, Settings and `run(settings) -> int`."""
