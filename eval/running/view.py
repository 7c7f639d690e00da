"""How much of the head camera's picture what the robot holds hides."""

import numpy as np

from planner.execution.progress import OnStep, StepInfo
from tpsrl.sim.base import Simulator
from tpsrl.world.state import WorldState

NEAR_M = 0.4
BLOCKED_SHARE = 0.5
_SIDE = 64  # pixels
_DEPTH_M = 10.0  # what a depth of 1 means


class ViewWatch:
    """Looks through the head camera at every n-th control step with an object in the hand.

    A look is blocked when more than half of the depth picture (64 x 64) is nearer than 0.4 m.
    """

    def __init__(self, simulator: Simulator, every: int, env_id: int = 0) -> None:
        self._simulator, self._every, self._env = simulator, every, env_id
        self._holding = self._looks = self._blocked = 0

    def on_step(self, world: WorldState, info: StepInfo) -> None:
        """What is called after each control step; `world` is of batch one."""
        if world.held[0] < 0:
            return
        if self._holding % self._every == 0:
            depth = self._simulator.depth([self._env], _SIDE, _SIDE)[0]
            self._looks += 1
            self._blocked += bool(np.mean(depth * _DEPTH_M < NEAR_M) > BLOCKED_SHARE)
        self._holding += 1

    @property
    def share(self) -> float | None:
        """The share of blocked looks; None when nothing was ever in the hand."""
        return self._blocked / self._looks if self._looks else None


def in_turn(*watchers: OnStep | None) -> OnStep | None:
    """One that calls those that are there; None when there is none."""
    there = [watcher for watcher in watchers if watcher is not None]

    def tell(world: WorldState, info: StepInfo) -> None:
        for watcher in there:
            watcher(world, info)

    return tell if there else None
