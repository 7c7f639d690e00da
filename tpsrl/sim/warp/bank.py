"""Start states on the device, from which homes restart without a transfer from the processor."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from tpsrl.sim.warp.starts import DATA_FIELDS, MODEL_FIELDS, BatchStart

# Columns of a bank that are not fields of the engine.
_OWN = ("held", "arm_target", "longest", "object_geom", "num_objects", "episode", "floor")


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A value of each start state; equal values are stored once.

    Most fields of the model depend only on the apartment, so that thousands of start states share
    some hundred rows.
    """

    table: torch.Tensor  # (distinct values, ...)
    row: torch.Tensor  # (starts,) int64

    def of(self, starts: torch.Tensor) -> torch.Tensor:
        """Returns the values (n, ...) of start states (n,)."""
        return self.table[self.row[starts]]


class StartBank:
    """Start states of a `WarpBatch`.

    Args:
        starts: start states, prepared by a home of the C engine
        likes: a tensor of the device for each column, which has its shape beyond the first axis,
            its type and its device
        floors: number of the floor map of each apartment; new apartments are added
        named: whether the column "episode" is the start state's place in `ids`; otherwise it is -1
    """

    def __init__(
        self,
        starts: Iterable[BatchStart],
        likes: Mapping[str, torch.Tensor],
        floors: dict[str, int],
        named: bool,
    ) -> None:
        self.ids: list[str] = []  # of the start states' episodes
        rows: dict[str, list[int]] = {name: [] for name in likes}
        known: dict[str, dict[bytes, int]] = {name: {} for name in likes}
        values: dict[str, list[np.ndarray]] = {name: [] for name in likes}
        for start in starts:
            layout = start.episode.layout
            floor = floors.setdefault(layout, len(floors))
            number = len(self.ids) if named else -1
            self.ids.append(start.episode.id)
            for name, value in _columns(start, number, floor).items():
                key = value.tobytes()
                if key not in known[name]:
                    known[name][key] = len(values[name])
                    values[name].append(value)
                rows[name].append(known[name][key])
        self.columns = {}
        for name, like in likes.items():
            table = torch.from_numpy(np.stack(values[name])).to(like.device, like.dtype)
            shape = (len(table), *like.shape[1:])
            row = torch.tensor(rows[name], device=like.device)
            self.columns[name] = Column(table.reshape(shape), row)

    def put(
        self, tensors: Mapping[str, torch.Tensor], which: torch.Tensor, starts: torch.Tensor
    ) -> None:
        """Writes columns into tensors (n, ...) in place.

        Args:
            tensors: destinations by name of the column
            which: (n,) bool, rows to write
            starts: (n,) int64, start state of each row
        """
        for name, tensor in tensors.items():
            new = self.columns[name].of(starts)
            tensor.copy_(torch.where(which.reshape(-1, *[1] * (tensor.ndim - 1)), new, tensor))


def _columns(start: BatchStart, episode: int, floor: int) -> dict[str, np.ndarray]:
    """Returns the values of a start state by column."""
    own = (
        start.held,
        start.arm_target,
        start.longest,
        start.object_geom,
        len(start.episode.objects),
        episode,
        floor,
    )
    named = zip(_OWN, own, strict=True)
    fields = {name: start.model[name] for name in MODEL_FIELDS}
    fields |= {name: start.data[name] for name in DATA_FIELDS}
    return fields | {name: np.asarray(value) for name, value in named}
