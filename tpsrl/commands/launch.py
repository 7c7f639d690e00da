"""torchrun for the ranks of one machine, which says in a line what torchrun says in a traceback.

python -m tpsrl.commands.launch ARGUMENTS OF TORCHRUN
"""

import logging
import signal
import sys


def main() -> int:
    """Runs it; 143 or 130 when it was told to end, otherwise the code of the rank that failed."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # It warns of every signal that it passes on.
    for name in ("agent.server.api", "multiprocessing.api"):
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.ERROR)
    try:
        torchrun(sys.argv[1:])
    except SignalException as ended:
        name = "interrupted" if ended.sigval == signal.SIGINT else "terminated"
        print(f"tpsrl: {name}", file=sys.stderr)
        return 128 + ended.sigval
    except ChildFailedError as failed:  # that rank has said why
        rank, failure = failed.get_first_failure()
        code = failure.exitcode
        if code < 0:
            said = f"tpsrl: error: rank {rank} was ended by {signal.Signals(-code).name}"
            print(f"{said}, more often than it may be", file=sys.stderr)
        return code if code > 0 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
