"""The BatchSimulator protocol: homes that step in lockstep, with tensors in and out."""

from collections.abc import Sequence
from typing import Protocol

import torch

from tpsrl.sim.base import Capabilities
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class BatchSimulator(Protocol):
    """Homes of one device that take every control step together.

    What it gives is true until the next call: tensors may be views of the engine's own arrays.
    Homes are frozen and restored, where the engine can, through `tpsrl.sim.base.Simulator`.
    """

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; `device` is where its tensors are."""
        ...

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """Puts the named homes into the starts of their episodes; the others stay as they are.

        Raises:
            UserError: see `tpsrl.sim.base.Simulator.reset`.
        """
        ...

    def step(self, actions: torch.Tensor, moving: torch.Tensor | None = None) -> None:
        """One control step of 1/30 s of all homes, which must all have been reset.

        Args:
            actions: (n, 11) as `tpsrl.world.action` says, clipped.
            moving: (n,) bool, the homes that step; the others are as if nothing had happened.

        Raises:
            UserError: the actions have another shape.
            RunError: a home has outgrown the engine's room for contacts, or is not finite; names
                it, and what to raise.
        """
        ...

    def state(self) -> WorldState:
        """The state of all homes as tensors; rows beyond an episode's last object are NaN."""
        ...

    def depth(self, height: int = 64, width: int = 64) -> torch.Tensor:
        """Head depth (n, height, width) float32, 0 to 10 m mapped to 0 to 1, 90 degrees wide."""
        ...

    def close(self) -> None:
        """Frees what the engine holds; safe to call twice."""
        ...
