"""Groups of processes, ranks, that train one policy together, and their communication.

`Alone` is a single process; `Ranks` are those of a torch.distributed job started by torchrun or
SLURM (`join`). Learner and trainer call the same methods of either. All ranks must make the same
calls in the same order, so code that runs on a single rank must not use the group.
"""

import contextlib
import dataclasses
import datetime
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import distributed

from tpsrl.errors import RunError, UserError
from tpsrl.rl.distributed import rendezvous, slurm

_WAIT = datetime.timedelta(minutes=30)  # for the slowest rank, a validation by rank 0 included
_TALK = "lost another rank"
_PORTS = range(1, 65536)
_MOST = 1_000_000  # maximum number of ranks
_TOLD_S = 0.5  # time for a signal that was sent to all ranks to arrive here too


class OthersLostError(RunError):
    """Other ranks cannot be reached."""


@contextlib.contextmanager
def reaching_others(what: str) -> Iterator[None]:
    """Converts the long errors of torch.distributed about unreachable ranks to one line.

    Args:
        what: what failed, such as "could not join the others"

    Raises:
        OthersLostError: other ranks cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        # Signals that end all ranks arrive one by one. The signal to this rank takes precedence
        # over the loss of a rank that received its own earlier.
        time.sleep(_TOLD_S)
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise OthersLostError(f"ranks: {what}: {cause}") from None


class Group(Protocol):
    """A process among those that train together: number `rank` of `size`.

    `local_size` of the processes are on this machine. All methods raise `RunError` when another
    rank is lost.
    """

    rank: int
    size: int
    local_size: int

    def totals(self, values: Sequence[float]) -> list[float]:
        """Returns the sums over all ranks."""
        ...

    def average(self, tensors: Sequence[torch.Tensor], share: float) -> None:
        """Replaces tensors of one type by their means over all ranks, weighted by `share`."""
        ...

    def any(self, flag: bool) -> bool:
        """Returns whether the flag is set on any rank."""
        ...

    def gather(self, thing: Any) -> list[Any]:
        """Returns the object of each rank, by rank. It is pickled, so ranks must be trusted."""
        ...

    def share(self, thing: Any) -> Any:
        """Returns the object of rank 0."""
        ...


class Alone:
    """A process that trains alone."""

    rank, size, local_size = 0, 1, 1

    def totals(self, values: Sequence[float]) -> list[float]:
        """See `Group.totals`."""
        return list(values)

    def average(self, tensors: Sequence[torch.Tensor], share: float) -> None:
        """See `Group.average`."""

    def any(self, flag: bool) -> bool:
        """See `Group.any`."""
        return flag

    def gather(self, thing: Any) -> list[Any]:
        """See `Group.gather`."""
        return [thing]

    def share(self, thing: Any) -> Any:
        """See `Group.share`."""
        return thing


class Ranks:
    """The ranks of torch.distributed's default process group, which must exist already.

    Tensors are sent by the group's backend, numbers and objects on the CPU by gloo.

    Args:
        device: device of the tensors that `average` is given
        local_size: number of ranks on this machine; None: all
    """

    def __init__(self, device: torch.device, local_size: int | None = None) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.local_size = local_size or self.size
        self._device = device
        on_cpu = distributed.get_backend() == distributed.Backend.GLOO
        self._objects = None if on_cpu else distributed.new_group(backend="gloo", timeout=_WAIT)

    def totals(self, values: Sequence[float]) -> list[float]:
        """See `Group.totals`."""
        summed = torch.tensor(list(values), dtype=torch.float64)
        with reaching_others(_TALK):
            distributed.all_reduce(summed, group=self._objects)
        found: list[float] = summed.tolist()
        return found

    def average(self, tensors: Sequence[torch.Tensor], share: float) -> None:
        """See `Group.average`.

        All tensors are sent in one message: a policy has many small ones, and each message costs a
        round trip.
        """
        kind = tensors[0].dtype
        weight = torch.full((1,), share, dtype=kind, device=self._device)
        flat = torch.cat([share * t.reshape(-1) for t in tensors] + [weight])
        with reaching_others(_TALK):
            distributed.all_reduce(flat)
        flat /= flat[-1].clone()
        parts = flat[:-1].split([t.numel() for t in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """See `Group.any`."""
        return self.totals([float(flag)])[0] > 0.0

    def gather(self, thing: Any) -> list[Any]:
        """See `Group.gather`."""
        every: list[Any] = [None] * self.size
        with reaching_others(_TALK):
            distributed.all_gather_object(every, thing, group=self._objects)
        return every

    def share(self, thing: Any) -> Any:
        """See `Group.share`."""
        box = [thing]
        with reaching_others(_TALK):
            distributed.broadcast_object_list(box, src=0, group=self._objects)
        return box[0]


@dataclasses.dataclass(frozen=True, slots=True)
class RankPlace:
    """Position of this process among a job's ranks, and among those on this machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def here(cls) -> "RankPlace":
        """Reads the position from the variables of torchrun or srun; a single rank without them.

        Raises:
            UserError: the variables are invalid or contradictory.
        """
        job = slurm.variables(os.environ)
        size = _number(job, "WORLD_SIZE", 1, range(1, _MOST))
        if size == 1:
            return cls(0, 1, 0, 1)
        rank = _number(job, "RANK", None, range(size))
        local_size = _number(job, "LOCAL_WORLD_SIZE", size, range(1, size + 1))
        return cls(rank, size, _number(job, "LOCAL_RANK", 0, range(local_size)), local_size)


def join(device: torch.device) -> Group:
    """Joins the group in which torchrun or srun started this process; `Alone` without them.

    Raises:
        UserError: the environment variables are missing, invalid or contradictory.
        RunError: the other ranks cannot be reached.
    """
    place = RankPlace.here()
    if place.size == 1:
        return Alone()
    job = slurm.variables(os.environ)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not job.get(name):
            raise UserError(
                f"{name}: not set, but WORLD_SIZE is {place.size}; start it by torchrun"
            )
    address = job["MASTER_ADDR"], _number(job, "MASTER_PORT", None, _PORTS)
    if not distributed.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        with reaching_others("could not join them"):
            rendezvous.begin(backend, place.rank, place.size, address, _WAIT)
    return Ranks(device, place.local_size)


def leave() -> None:
    """Leaves the group, if there is one; safe to call twice."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def average_gradients(
    group: Group, parameters: Iterable[torch.Tensor], share: float, loss: torch.Tensor
) -> torch.Tensor:
    """Averages existing gradients over all ranks; returns the mean loss ().

    A value that is not finite on one rank becomes non-finite on all, so that the guards of all
    ranks trip together.

    Args:
        group: the ranks that train together
        parameters: the same ones must have a gradient on all ranks
        share: weight of this rank
        loss: () of this rank
    """
    mean = loss.detach().clone()
    gradients = [p.grad for p in parameters if p.grad is not None]
    group.average([*gradients, mean], share)
    return mean


def _number(job: Mapping[str, str], name: str, default: int | None, allowed: range) -> int:
    text = job.get(name)
    if text is None and default is not None:
        return default
    # int() also accepts underscores and digits of other alphabets, and fails above 4300 digits.
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text or ""):
        raise UserError(f"{name}: '{text or ''}' is not an integer; start it by torchrun")
    number = int(text or "")
    if number not in allowed:
        raise UserError(
            f"{name}: {number} is out of range, must be between {allowed[0]} and {allowed[-1]}"
        )
    return number
