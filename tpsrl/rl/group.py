"""Processes that learn one policy together, ranks, and the few things that they tell each other.

`Alone` is a single process, `Ranks` those of a torch.distributed job as torchrun or SLURM start it
(`join`). Learner and trainer call the same methods of either. All ranks have to make the same calls
in the same order: what one rank does by itself, whatever the others do, must not come by here.
"""

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import distributed

from tpsrl.errors import RunError, UserError
from tpsrl.rl import slurm

_WAIT = datetime.timedelta(minutes=30)  # for the slowest rank, a validation of rank 0 included


class Group(Protocol):
    """A process among those that learn together: number `rank` of `size`.

    `local_size` of them are on this machine.
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
        distributed.all_gather_object(every, thing, group=self._objects)
        return every

    def share(self, thing: Any) -> Any:
        """See `Group.share`."""
        box = [thing]
        distributed.broadcast_object_list(box, src=0, group=self._objects)
        return box[0]


def join(device: torch.device) -> Group:
    """The group that this process was started in, by torchrun or srun; alone without.

    Raises:
        UserError: what the environment says of it does not fit together.
        RunError: the other ranks are not to be reached.
    """
    job = slurm.variables(os.environ)
    size = _number(job, "WORLD_SIZE", 1)
    if size == 1:
        return Alone()
    rank = _number(job, "RANK", None)
    if not 0 <= rank < size:
        raise UserError(f"RANK: {rank} is out of range, must be between 0 and {size - 1}")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not job.get(name):
            raise UserError(f"{name}: not set, but WORLD_SIZE is {size}; start it by torchrun")
    if not distributed.is_initialized():
        _begin(job, "nccl" if device.type == "cuda" else "gloo", rank, size)
    return Ranks(device, _number(job, "LOCAL_WORLD_SIZE", size))


def _begin(job: Mapping[str, str], backend: str, rank: int, size: int) -> None:
    """Meets the other ranks."""
    try:
        if "WORLD_SIZE" in os.environ:
            # torchrun says more of the meeting than is in `job`, and torch looks for it there.
            distributed.init_process_group(backend, timeout=_WAIT)
            return
        place = f"tcp://{job['MASTER_ADDR']}:{_number(job, 'MASTER_PORT', None)}"
        distributed.init_process_group(
            backend, init_method=place, rank=rank, world_size=size, timeout=_WAIT
        )
    except (RuntimeError, ValueError) as error:
        raise RunError(f"ranks: could not join the others: {str(error).splitlines()[0]}") from None


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


def _number(job: Mapping[str, str], name: str, default: int | None) -> int:
    text = job.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise UserError(
            f"{name}: '{text or ''}' is no whole number; start it by torchrun"
        ) from None
