"""`python -m tpsrl` is the `tpsrl` command."""

import sys

from tpsrl.cli import command

if __name__ == "__main__":
    sys.exit(command())
