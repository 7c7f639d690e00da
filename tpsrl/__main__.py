"""Entry point of `python -m tpsrl`, which is the same as the `tpsrl` command."""

import sys

from tpsrl.cli import command

if __name__ == "__main__":
    sys.exit(command())
