"""torchrun for the ranks of one machine, with one-line errors instead of torchrun's tracebacks.

python -m tpsrl.training.launch ARGUMENTS OF TORCHRUN
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tpsrl.runtime.processes import STARTER, Terminated, end_with_starter, ending_in_order

_REFUSED = 2  # exit code of a rank with bad input, for which a restart is useless


def main() -> int:
    """Runs torchrun and returns the exit code.

    The exit code is 143 or 130 after a signal, otherwise that of the first failed rank, or 0.
    """
    end_with_starter(signal.SIGTERM)
    os.environ[STARTER] = str(os.getpid())
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun's default, without its long warning
    try:
        with ending_in_order():  # until torchrun installs its signal handlers
            return _run()
    except Terminated:
        return told_to_end(signal.SIGTERM)
    except KeyboardInterrupt:
        return told_to_end(signal.SIGINT)


def _run() -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # torchrun warns of every forwarded signal, and repeats errors that the ranks have printed.
    for name in ("agent.server.api", "multiprocessing.api"):
        log = logging.getLogger(f"torch.distributed.elastic.{name}")
        log.setLevel(logging.ERROR)
        log.addFilter(lambda record: not str(record.msg).startswith("failed (exitcode:"))
    _mend_agent()
    try:
        torchrun(sys.argv[1:])
    except SignalException as ended:
        return told_to_end(ended.sigval)
    except ChildFailedError as failed:  # the rank has printed the reason
        rank, failure = failed.get_first_failure()
        code = failure.exitcode
        if code < 0:
            message = f"tpsrl: error: rank {rank} {_ended(code)}"
            print(f"{message}, more often than allowed", file=sys.stderr)
        return code if code > 0 else 1
    return 0


def told_to_end(number: int) -> int:
    """Prints that a signal has ended the run, and returns the exit code."""
    name = "interrupted" if number == signal.SIGINT else "terminated"
    print(f"tpsrl: {name}", file=sys.stderr)
    return 128 + number


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def _mend_agent() -> None:
    """Makes torchrun end all ranks that it starts, and not restart those that refused input."""
    from torch.distributed.elastic.agent.server import local_elastic_agent
    from torch.distributed.launcher import api

    class Agent(local_elastic_agent.LocalElasticAgent):
        def _start_workers(self, worker_group: Any) -> Any:
            with _told_afterwards():
                return super()._start_workers(worker_group)

        def _monitor_workers(self, worker_group: Any) -> Any:
            found = super()._monitor_workers(worker_group)
            codes = {rank: failure.exitcode for rank, failure in found.failures.items()}
            if _REFUSED in codes.values():
                self._remaining_restarts = 0
            elif codes and self._remaining_restarts:
                rank, code = next(iter(codes.items()))
                print(f"rank {rank} {_ended(code)}; all ranks are restarted", flush=True)
            return found

    api.LocalElasticAgent = Agent  # type: ignore[misc]


@contextlib.contextmanager
def _told_afterwards() -> Iterator[None]:
    """Delays the signals that reach torchrun while it starts its ranks to the end of the block.

    torchrun registers the ranks only when all are started. A signal before that would end torchrun,
    but not the ranks started so far.
    """
    from torch.distributed.elastic.multiprocessing import api

    raising, received = api._terminate_process_handler, list[int]()

    def keep(number: int, frame: FrameType | None) -> None:
        received.append(number)

    api._terminate_process_handler = keep  # type: ignore[assignment]
    try:
        yield
    finally:
        api._terminate_process_handler = raising
        for number in signal.valid_signals():
            if signal.getsignal(number) is keep:
                signal.signal(number, raising)
    if received:
        raising(received[0], None)


if __name__ == "__main__":
    sys.exit(main())
