"""The Simulator protocol: a batch of homes that step independently of each other."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.render.cameras import Sphere
from tpsrl.render.shapes import Shape
from tpsrl.world.cameras import PICTURES, Sides
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class Overlap(UserError):
    """An episode starts with the robot or an object inside something; `what` says which."""

    def __init__(self, episode: str, what: str) -> None:
        super().__init__(f"episode {episode}: {what}")
        self.what = what


class HomeLost(RunError):
    """A home has ended or failed in the midst of an episode; a reset brings it back."""


# What an engine may measure beside state and depth, by the names of the sensors that show it.
MEASURES = ("laser", "clearance", "motion", "neighbours")


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; callers ask instead of trying.

    `measures` are those of `MEASURES` that it gives, `cameras` those of
    `tpsrl.world.cameras.PICTURES`; the methods for the others raise `UserError`.
    Without `shapes` there is nothing for a viewer to draw.
    """

    exact_snapshots: bool
    colour: bool
    device: str  # "cpu" or "cuda"
    measures: frozenset[str] = frozenset(MEASURES)
    shapes: bool = True
    cameras: frozenset[str] = frozenset(PICTURES)


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A home frozen: restored state and the same actions give the same future, bit for bit.

    `arrays` are plain numpy arrays (safe to store without pickle), `episode` is the record that
    the home was reset with. Restores into any home of any process with the same `engine` stamp.
    """

    engine: str
    episode: Episode
    arrays: dict[str, np.ndarray]


class Simulator(Protocol):
    """A batch of homes. Every call names the homes it is about; the others do not move."""

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of the instances by their number in instance pictures; () without such pictures.

        "nothing", "wall" (all walls), "robot", each piece of furniture, each door and drawer, and
        "object_0" and so on, by the index in `Episode.objects`.
        """
        ...

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """Puts each home into the start of its episode.

        Raises:
            UserError: an episode names an unknown layout, object or receptacle, has more objects
                than there are slots.
            Overlap: the robot or an object is inside something.
        """
        ...

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        """One control step of 1/30 s; actions (n, 11) as `tpsrl.world.action` says, clipped."""
        ...

    def state(self, env_ids: Sequence[int]) -> WorldState:
        """The state of the homes, batch axis in the order of `env_ids`."""
        ...

    def depth(self, env_ids: Sequence[int], height: int = 64, width: int = 64) -> np.ndarray:
        """Head depth (n, height, width) float32, 0 to 10 m mapped to 0 to 1, 90 degrees wide."""
        ...

    def look(self, env_ids: Sequence[int], sizes: Mapping[str, Sides]) -> dict[str, np.ndarray]:
        """Pictures (n, height, width) by the names of `tpsrl.world.cameras.PICTURES`.

        Depth is float32 as of `depth`, and "head_depth" the same bits. Colour is uint8 (n, height,
        width, 3), lit by one lamp. Of semantic pictures each pixel is the number of its class in
        `tpsrl.world.cameras.CLASSES`, of instance pictures an index into `instances`, uint8.
        Pictures of one camera and size take one cast.
        """
        ...

    def laser(self, env_ids: Sequence[int]) -> np.ndarray:
        """Scans (n, LASER_RAYS) float32 by the base's laser, see `tpsrl.sim.laser.Laser`."""
        ...

    def clearance(self, env_ids: Sequence[int], targets: np.ndarray) -> np.ndarray:
        """How near points of the robot are to surfaces, (n, CLEARANCE_ROWS, 4) float32.

        See `tpsrl.sim.clearance.Clearance`; `targets` (n,) are the objects that the hands are to
        touch, -1 for none.
        """
        ...

    def neighbours(
        self, env_ids: Sequence[int], targets: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        """Loose objects nearest to cups and to `points` (n, 3), (n, NEIGHBOUR_ROWS, 4) float32.

        See `tpsrl.sim.clearance.Clearance.neighbours`. Neither what is held nor the objects
        `targets` (n,) count.
        """
        ...

    def object_velocity(self, env_ids: Sequence[int], objects: np.ndarray) -> np.ndarray:
        """Velocities (n, 6) float32 of one object each, world frame: m/s, then rad/s.

        `objects` (n,) are their numbers in the episode; -1 for none, whose velocity is 0.
        """
        ...

    def snapshot(self, env_id: int) -> Snapshot:
        """The home, frozen.

        Raises:
            UserError: the engine cannot take exact snapshots.
        """
        ...

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        """Puts a home exactly into the frozen state.

        Raises:
            UserError: the snapshot does not fit, or the engine cannot take exact snapshots.
        """
        ...

    def render(
        self,
        env_id: int,
        camera: str = "third_person",
        height: int = 360,
        width: int = 480,
        markers: Sequence[Sphere] = (),
    ) -> np.ndarray:
        """Shaded colour picture (height, width, 3) uint8; camera "third_person" or "head"."""
        ...

    def shapes(self, env_id: int) -> list[Shape]:
        """What a home is made of, for a viewer.

        Raises:
            UserError: the engine has no shapes.
        """
        ...

    def body_poses(self, env_id: int) -> np.ndarray:
        """Poses (m, 7) float32 of the bodies that move: position (m), quaternion (w, x, y, z)."""
        ...

    def close(self) -> None:
        """Frees what the engine holds; safe to call twice."""
        ...
