"""Ranks of a training: detection of the current job, and start of ranks on one machine."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn, TypeVar

from tpsrl.errors import UserError
from tpsrl.rl.distributed import slurm
from tpsrl.runtime import progress
from tpsrl.runtime.processes import STARTER
from tpsrl.training import launch
from tpsrl.training.settings import DistillSettings, TrainingSettings

if TYPE_CHECKING:
    import torch

    from tpsrl.rl.distributed.group import Group, RankPlace
    from tpsrl.rl.envs.vec_env import Json

_PATIENCE_S = 2.0  # time before a rank prints that it waits for others
_RESTARTS = 3  # maximum restarts of all ranks after the death of a rank

Prepared = TypeVar("Prepared")


class RankWatch(contextlib.AbstractContextManager["RankWatch"]):
    """Watcher of ranks other than 0: prints only messages, while rank 0 shows the progress."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __exit__(self, *error: object) -> None: ...

    def prepare(self, what: str, done: int, count: int) -> None:
        """See `tpsrl.rl.run.watch.Watch.prepare`."""

    def update(self, row: "Json") -> None:
        """See `tpsrl.rl.run.records.Watcher.update`."""

    def say(self, text: str) -> None:
        """See `tpsrl.rl.run.records.Watcher.say`."""
        print(f"rank {self._rank}: {text}", flush=True)


def in_job() -> bool:
    """Returns whether torchrun or srun has started this process as one of several.

    Raises:
        UserError: see `tpsrl.rl.distributed.slurm.variables`.
    """
    return "WORLD_SIZE" in slurm.variables(os.environ)


def jobs() -> list[str]:
    """Returns the kinds and ids of the jobs that this process is part of."""
    named = {"torchrun": "TORCHELASTIC_RUN_ID", "slurm": "SLURM_JOB_ID"}
    return [f"{kind} {os.environ[name]}" for kind, name in named.items() if os.environ.get(name)]


def restarted() -> str:
    """Returns the job of `jobs` that was restarted, or "".

    torchrun restarts the ranks after the death of one; SLURM requeues a job.

    Raises:
        UserError: a variable of a job is not an integer.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    if not (restarts.isascii() and restarts.isdigit()):
        raise UserError(f"TORCHELASTIC_RESTART_COUNT: '{restarts}' is not an integer")
    kinds = {"torchrun": int(restarts) > 0, "slurm": slurm.is_requeued(os.environ)}
    return next((job for job in jobs() if kinds[job.partition(" ")[0]]), "")


def begin(settings: TrainingSettings) -> int:
    """Starts the ranks of a training on this machine, waits for them, and returns the exit code.

    SIGTERM and Ctrl-C are passed on to the ranks, which also end when this process ends.
    """
    launcher = ["-m", "tpsrl.training.launch", "--standalone", f"--nproc-per-node={settings.ranks}"]
    launcher += [f"--max-restarts={_RESTARTS}", "-m", *words_of(settings)]
    sys.stdout.flush()
    process = subprocess.Popen(
        [sys.executable, *launcher],
        env=os.environ | {STARTER: str(os.getpid())},
        start_new_session=True,  # so that it receives Ctrl-C only once, through `_passing_on`
    )
    with _passing_on(process):
        code = process.wait()
    # If the launcher was killed by a signal, it could not print the reason itself.
    return code if code >= 0 else launch.told_to_end(-code)


def words_of(settings: TrainingSettings) -> list[str]:
    """Returns the words of the command line that trains with these settings."""
    from eval.running.command import command_line

    verb = "distill" if isinstance(settings, DistillSettings) else "train"
    return shlex.split(command_line(("tpsrl", verb, settings.skill), settings, ("skill",)))


@contextlib.contextmanager
def _passing_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Forwards SIGTERM and Ctrl-C to another process, which reports them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [
        signal.signal(number, lambda number, frame: process.send_signal(number))
        for number in numbers
    ]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def joined(device: "torch.device") -> Iterator["Group"]:
    """Yields the group of ranks of this process, and leaves the group at the end.

    Raises:
        UserError, RunError: see `tpsrl.rl.distributed.group.join`.
    """
    from tpsrl.rl.distributed import group as groups

    with _saying_who_is_waited_for(groups.RankPlace.here()):
        group = groups.join(device)
    try:
        yield group
    finally:
        groups.leave()


@contextlib.contextmanager
def _saying_who_is_waited_for(place: "RankPlace") -> Iterator[None]:
    """Prints a line if joining the group of ranks takes long."""
    job = slurm.variables(os.environ)
    where = f"{job.get('MASTER_ADDR')}:{job.get('MASTER_PORT')}"
    text = f"rank {place.rank}: waiting for all {place.size} ranks at {where}"
    with progress.if_long(text, _PATIENCE_S) if place.size > 1 else contextlib.nullcontext():
        yield


def end(code: int) -> NoReturn:
    """Ends the process of a rank that has left its group and closed all files.

    A normal exit is sometimes aborted by remaining threads of torch.distributed, which a launcher
    takes for the death of the rank.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def device_of(choice: str) -> "torch.device":
    """Returns the device of this rank; `auto` is a GPU if there is one.

    Raises:
        UserError: there is no GPU, or fewer than ranks on this machine, or the environment
            variables of the ranks are inconsistent.
    """
    import torch

    from tpsrl.rl.distributed.group import RankPlace

    place = RankPlace.here()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if choice == "cpu" or (choice == "auto" and count == 0):
        return torch.device("cpu")
    ranks, number = place.local_size, place.local_rank
    if count < ranks and count > 0 and slurm.has_own_gpus(os.environ):
        ranks, number = 1, 0
    if count < ranks:
        there = f"{count} GPUs for {ranks} ranks" if count else "no GPU"
        raise UserError(f"device: {there} on this machine; nearest: cpu")
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def in_turn(group: "Group", make: Callable[[], Prepared]) -> Prepared:
    """Calls `make` on rank 0 first, then on the others, which find its results in the cache."""
    if group.rank > 0:
        group.gather(None)
    made = make()
    if group.rank == 0:
        group.gather(None)
    return made
