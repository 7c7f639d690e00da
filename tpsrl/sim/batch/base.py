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

    def prepared(self) -> WorldState:
        """Returns the states of the prepared start states, numpy arrays on the processor.

        Homes have to be reset or restarted afterwards.
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

    def clearance(self, targets: torch.Tensor) -> torch.Tensor:
        """Returns clearances of points of the robot, as `tpsrl.sim.base.Simulator.clearance`.

        Args:
            targets: (n,) int64, the objects that the hands are meant to touch, -1 for none.

        Returns:
            (n, CLEARANCE_ROWS, 4) float32.
        """
        ...

    def neighbours(self, targets: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Returns where loose objects are, as `tpsrl.sim.base.Simulator.neighbours`.

        Args:
            targets: (n,) int64, objects that do not count, -1 for none.
            points: (n, 3) in the world frame, metres.

        Returns:
            (n, NEIGHBOUR_ROWS, 4) float32.
        """
        ...

    def scan(
        self, maps: torch.Tensor, origin: tuple[float, float], rows: torch.Tensor
    ) -> torch.Tensor:
        """Returns the ranges of the scanner on floor maps; see `tpsrl.world.scan.Scanner.ranges`.

        Args:
            maps: (k, ny, nx) float32, distances of cells from obstacles, metres.
            origin: x and y of the maps, metres.
            rows: (n,) int64, the map of each home.

        Returns:
            (n, RAYS) float32, metres.
        """
        ...

    def object_velocity(self, objects: torch.Tensor) -> torch.Tensor:
        """Returns the velocity of one object per home, world frame: m/s, rad/s.

        Args:
            objects: (n,) int64, indices into the episodes' objects; -1 gives velocity 0.

        Returns:
            (n, 6) float32.
        """
        ...

    def close(self) -> None:
        """Frees the engine's resources; safe to call twice."""
        ...
