"""Any engine as a `BatchSimulator`, by stepping its homes one after another."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.sim.base import Capabilities, Simulator
from tpsrl.world.action import SIZE
from tpsrl.world.episode import Episode
from tpsrl.world.scan import ranges_on
from tpsrl.world.state import WorldState


class LoopedBatch:
    """`tpsrl.sim.batch.base.BatchSimulator` on top of a `Simulator`, with tensors on the CPU."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._all = range(simulator.num_envs)
        self._prepared: Sequence[Episode] = ()

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        return self._simulator.num_envs

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the simulator."""
        return self._simulator.capabilities

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.reset`."""
        self._simulator.reset(env_ids, episodes)

    def step(self, actions: torch.Tensor, moving: torch.Tensor | None = None) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.step`."""
        check_actions(actions, self.num_envs)
        who = np.arange(self.num_envs) if moving is None else np.flatnonzero(moving.numpy())
        self._simulator.step(who.tolist(), actions.numpy()[who])

    def prepare(self, episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.prepare`."""
        self._prepared = episodes

    def prepared(self) -> WorldState:
        """See `tpsrl.sim.batch.base.BatchSimulator.prepared`."""
        states = []
        for episode in self._prepared:
            self._simulator.reset([0], [episode])
            states.append(self._simulator.state([0]))
        return WorldState.joined(states)

    def restart(self, which: torch.Tensor, starts: torch.Tensor) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.restart`."""
        homes = np.flatnonzero(which.numpy()).tolist()
        rows = starts.tolist()
        self._simulator.reset(homes, [self._prepared[rows[home]] for home in homes])

    def check(self) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.check`; errors were raised by `step`."""

    def state(self) -> WorldState:
        """See `tpsrl.sim.batch.base.BatchSimulator.state`."""
        world = self._simulator.state(self._all)
        fields = (f.name for f in dataclasses.fields(world))
        return WorldState(**{name: torch.from_numpy(getattr(world, name)) for name in fields})

    def depth(self, height: int = 64, width: int = 64) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.depth`."""
        return torch.from_numpy(self._simulator.depth(self._all, height, width))

    def laser(self) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.laser`."""
        return torch.from_numpy(self._simulator.laser(self._all))

    def clearance(self, targets: torch.Tensor) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.clearance`."""
        return torch.from_numpy(self._simulator.clearance(self._all, targets.numpy()))

    def neighbours(self, targets: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.neighbours`."""
        given = targets.numpy(), points.numpy().astype(np.float64)
        return torch.from_numpy(self._simulator.neighbours(self._all, *given))

    def scan(
        self, maps: torch.Tensor, origin: tuple[float, float], rows: torch.Tensor
    ) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.scan`."""
        base = np.ascontiguousarray(self._simulator.state(self._all).base, np.float64)
        found = ranges_on(maps.numpy(), *origin, rows.numpy(), base)
        return torch.from_numpy(found.astype(np.float32))

    def object_velocity(self, objects: torch.Tensor) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.object_velocity`."""
        return torch.from_numpy(self._simulator.object_velocity(self._all, objects.numpy()))

    def close(self) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.close`."""
        self._simulator.close()


def check_actions(actions: torch.Tensor, num_envs: int) -> None:
    """Checks the shape of actions.

    Raises:
        UserError: the shape is not (num_envs, 11).
    """
    if tuple(actions.shape) != (num_envs, SIZE):
        raise UserError(f"actions: shape is {tuple(actions.shape)}, expected ({num_envs}, {SIZE})")
