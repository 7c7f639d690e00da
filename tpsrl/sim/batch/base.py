"""The BatchSimulator protocol: homes that step in lockstep, with tensors in and out."""

from collections.abc import Sequence
from typing import Protocol

import torch

from tpsrl.sim.base import Capabilities
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class BatchSimulator(Protocol):
    """Homes on one device that take every control step together.

    Returned tensors are valid until the next call, since they may be views of the engine's own
    arrays. Snapshots are taken and restored through `tpsrl.sim.base.Simulator`, if the engine
    supports them.
    """

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine; `device` is the device of its tensors."""
        ...

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """Puts homes into the start states of their episodes; the other homes do not change.

        Raises:
            UserError: see `tpsrl.sim.base.Simulator.reset`.
        """
        ...

    def prepare(self, episodes: Sequence[Episode]) -> None:
        """Prepares start states for `restart`, in place of those of earlier calls.

        Raises:
            UserError: see `tpsrl.sim.base.Simulator.reset`.
        """
        ...

    def restart(self, which: torch.Tensor, starts: torch.Tensor) -> None:
        """Puts homes into prepared start states; the other homes do not change.

        Unlike `reset`, it does not wait for the device.

        Args:
            which: (n,) bool, the homes to restart.
            starts: (n,) int64, index of a prepared episode for each home; ignored elsewhere.
        """
        ...

    def step(self, actions: torch.Tensor, moving: torch.Tensor | None = None) -> None:
        """Takes one control step of 1/30 s in all homes.

        All homes must have been reset before. It does not wait for the device, so `check` reports
        the engine's errors.

        Args:
            actions: (n, 11) as in `tpsrl.world.action`, clipped to [-1, 1].
            moving: (n,) bool, the homes that step; the other homes do not change.

        Raises:
            UserError: the actions have the wrong shape.
        """
        ...

    def check(self) -> None:
        """Waits for the device and raises the first error of the steps since the last call.

        Raises:
            RunError: a home exceeds the engine's room for contacts or constraints, or its state is
                not finite; names the home and the setting to raise.
        """
        ...

    def state(self) -> WorldState:
        """Returns the state of all homes; rows beyond an episode's last object are NaN."""
        ...

    def depth(self, height: int = 64, width: int = 64) -> torch.Tensor:
        """Returns the head camera's depth, 90 degrees wide.

        Returns:
            (n, height, width) float32, 0 to 10 m mapped to 0 to 1.
        """
        ...

    def laser(self) -> torch.Tensor:
        """Returns the ranges of the laser on the base, as `tpsrl.sim.base.Simulator.laser`.

        Returns:
            (n, rays) float32, metres.
        """
        ...

    def close(self) -> None:
        """Frees the engine's resources; safe to call twice."""
        ...
