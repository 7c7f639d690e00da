"""Processes that learn one policy together, ranks, and the few things that they tell each other.

`Alone` is a single process, `Ranks` those of a torch.distributed job as torchrun or SLURM start it
(`join`). Learner and trainer call the same methods of either. All ranks have to make the same calls
in the same order: what one rank does by itself, whatever the others do, must not come by here.
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

_WAIT = datetime.timedelta(minutes=30)  # for the slowest rank, a validation of rank 0 included
_TALK = "lost another rank"
_PORTS = range(1, 65536)
_MOST = 1_000_000  # ranks
_TOLD_S = 0.5  # after another rank, in which this one is told to end too


class OthersLostError(RunError):
    """Other ranks are not to be reached."""


@contextlib.contextmanager
def reaching_others(what: str) -> Iterator[None]:
    """Says in a line what torch.distributed says in pages when ranks are not to be reached.

    Args:
        what: "could not join the others", say

    Raises:
        OthersLostError: they are not.
    """
    try:
        yield
    except RuntimeError as error:
        # Whoever ends all ranks has told one first; that this one is told comes before its loss.
        time.sleep(_TOLD_S)
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise OthersLostError(f"ranks: {what}: {cause}") from None


class Group(Protocol):
    """A process among those that learn together: number `rank` of `size`.

    `local_size` of them are on this machine. All calls raise `RunError` when another is lost.
    """

    rank: int
    size: int
    local_size: int

    def totals(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks."""
        ...

    def average(self, tensors: Sequence[torch.Tensor], share: float) -> None:
        """Puts means over all ranks into tensors of one type, each rank counting `share` times."""
        ...

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        ...

    def gather(self, thing: Any) -> list[Any]:
        """What each rank has, by rank; anything that can be pickled, of ranks that are trusted."""
        ...

    def share(self, thing: Any) -> Any:
        """What rank 0 has."""
        ...


class Alone:
    """A process that learns by itself."""

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
    """The ranks of torch.distributed's default process group, which has been made.

    Tensors go by its backend, numbers and objects on the CPU by gloo.

    Args:
        device: of the tensors that `average` is given
        local_size: how many of them are on this machine; None: all
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

        One message for all: a policy has many small tensors, and each message costs a round trip.
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
    """Which of a job's ranks this process is, of all and of those on this machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def here(cls) -> "RankPlace":
        """As torchrun or srun tell it; the only one without them.

        Raises:
            UserError: what they say does not fit together.
        """
        job = slurm.variables(os.environ)
        size = _number(job, "WORLD_SIZE", 1, range(1, _MOST))
        if size == 1:
            return cls(0, 1, 0, 1)
        rank = _number(job, "RANK", None, range(size))
        local_size = _number(job, "LOCAL_WORLD_SIZE", size, range(1, size + 1))
        return cls(rank, size, _number(job, "LOCAL_RANK", 0, range(local_size)), local_size)


def join(device: torch.device) -> Group:
    """The group that this process was started in, by torchrun or srun; alone without.

    Raises:
        UserError: what the environment says of it does not fit together.
        RunError: the other ranks are not to be reached.
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
    """Averages the gradients that there are over all ranks; the mean loss ().

    What is not finite on one rank is not finite on any then, so that all guards trip together.

    Args:
        group: who learns together
        parameters: those with a gradient, which have to be the same on all ranks
        share: how much this rank counts
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
    # int() reads more, underscores and other alphabets among them, and not more than 4300 digits.
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text or ""):
        raise UserError(f"{name}: '{text or ''}' is not an integer; start it by torchrun")
    number = int(text or "")
    if number not in allowed:
        raise UserError(
            f"{name}: {number} is out of range, must be between {allowed[0]} and {allowed[-1]}"
        )
    return number
