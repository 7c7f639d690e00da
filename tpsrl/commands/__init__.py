"""One module a command, each with

- `DESCRIPTION`, what its help says;
- `POSITIONAL`, the keys that words without `=` set;
- `Settings`, the dataclass of its keys (see `tpsrl.config`);
- `run(settings) -> int`, which does it and returns the exit code.
"""
