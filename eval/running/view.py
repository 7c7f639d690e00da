"""Measures how much of the head camera's view is blocked by the held object."""

import numpy as np

from planner.execution.progress import OnStep, StepInfo
from tpsrl.sim.base import Simulator
from tpsrl.world.state import WorldState

NEAR_M = 0.4
BLOCKED_SHARE = 0.5
_SIDE = 64  # pixels
_DEPTH_M = 10.0  # distance (m) at depth value 1


class ViewWatch:
    """Takes a depth image of the head camera in every n-th control step with an object in the hand.

    The view counts as blocked if more than half of the pixels (64 x 64) are nearer than 0.4 m.
    """

    def __init__(self, simulator: Simulator, every: int, env_id: int = 0) -> None:
        self._simulator, self._every, self._env = simulator, every, env_id
        self._holding = self._looks = self._blocked = 0

    def on_step(self, world: WorldState, info: StepInfo) -> None:
        """Callback after each control step; `world` is of batch one."""
        if world.held[0] < 0:
            return
        if self._holding % self._every == 0:
            depth = self._simulator.depth([self._env], _SIDE, _SIDE)[0]
            self._looks += 1
            self._blocked += bool(np.mean(depth * _DEPTH_M < NEAR_M) > BLOCKED_SHARE)
        self._holding += 1

    @property
    def share(self) -> float | None:
        """Share of images with a blocked view; None if no object was ever in the hand."""
        return self._blocked / self._looks if self._looks else None


def in_turn(*watchers: OnStep | None) -> OnStep | None:
    """Returns a callback that calls all given ones in order; None if there is none."""
    there = [watcher for watcher in watchers if watcher is not None]

    def tell(world: WorldState, info: StepInfo) -> None:
        for watcher in there:
            watcher(world, info)

    return tell if there else None
