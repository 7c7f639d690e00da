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
    """Raised when an episode starts with the robot or an object inside another body.

    `what` names both bodies and the depth of the overlap.
    """

    def __init__(self, episode: str, what: str) -> None:
        super().__init__(f"episode {episode}: {what}")
        self.what = what


class HomeLost(RunError):
    """Raised when a home ends or fails during an episode; a reset makes it usable again."""


# Optional measurements of an engine besides state and depth, named after their sensors.
MEASURES = ("laser", "clearance", "motion", "neighbours")


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of an engine, for callers to check before they use an optional method.

    `measures` is the provided subset of `MEASURES`, `cameras` the provided subset of
    `tpsrl.world.cameras.PICTURES`; methods for the others raise `UserError`. Without `shapes` a
    viewer cannot show the homes.
    """

    exact_snapshots: bool
    colour: bool
    device: str  # "cpu" or "cuda"
    measures: frozenset[str] = frozenset(MEASURES)
    shapes: bool = True
    cameras: frozenset[str] = frozenset(PICTURES)


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """Frozen state of a home, from which the same actions give the same future, bit for bit.

    `arrays` are plain numpy arrays (safe to store without pickle), `episode` is the episode of the
    last reset. A snapshot restores into any home of any process with the same `engine` stamp,
    slots and layout set.
    """

    engine: str
    episode: Episode
    arrays: dict[str, np.ndarray]


class Simulator(Protocol):
    """A batch of homes. Methods act on the homes in `env_ids`; the other homes do not move."""

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine."""
        ...

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of the instances by their number in instance pictures; () without such pictures.

        "nothing", "wall" (all walls), "robot", each piece of furniture, each door and drawer, and
        "object_0" and so on, by the index in `Episode.objects`.
        """
        ...

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """Puts each home into the start state of its episode.

        Raises:
            UserError: an episode names an unknown layout, object or receptacle, or has more
                objects than there are slots.
            Overlap: the robot or an object is inside another body.
        """
        ...

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        """Takes one control step of 1/30 s in each home.

        `actions` (n, 11) are laid out as in `tpsrl.world.action` and clipped to [-1, 1].
        """
        ...

    def state(self, env_ids: Sequence[int]) -> WorldState:
        """Returns the state of the homes; the batch axis is in the order of `env_ids`."""
        ...

    def depth(self, env_ids: Sequence[int], height: int = 64, width: int = 64) -> np.ndarray:
        """Returns the head camera's depth, 90 degrees wide.

        Returns:
            (n, height, width) float32, 0 to 10 m mapped to 0 to 1.
        """
        ...

    def look(self, env_ids: Sequence[int], sizes: Mapping[str, Sides]) -> dict[str, np.ndarray]:
        """Returns pictures of the robot's cameras.

        Pictures of the same camera and size share one ray cast.

        Args:
            env_ids: the n homes.
            sizes: height and width of each picture, by its name in
                `tpsrl.world.cameras.PICTURES`.

        Returns:
            Arrays by picture name. Depth is (n, height, width) float32, scaled as in `depth`, and
            "head_depth" has the same bits as `depth`. Colour is (n, height, width, 3) uint8, lit
            by one lamp. Semantic pictures are (n, height, width) uint8, indices into
            `tpsrl.world.cameras.CLASSES`, instance pictures indices into `instances`, and category
            pictures 1 + indices into `tpsrl.world.categories.CATEGORIES`, 0 for none.
        """
        ...

    def laser(self, env_ids: Sequence[int]) -> np.ndarray:
        """Returns scans (n, LASER_RAYS) float32 of the base's laser in metres.

        See `tpsrl.sim.laser.Laser.ranges`.
        """
        ...

    def clearance(self, env_ids: Sequence[int], targets: np.ndarray) -> np.ndarray:
        """Returns clearances of points of the robot, (n, CLEARANCE_ROWS, 4) float32.

        See `tpsrl.sim.clearance.Clearance.measure`. `targets` (n,) are the objects that the hands
        are meant to touch, -1 for none.
        """
        ...

    def neighbours(
        self, env_ids: Sequence[int], targets: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        """Returns where the loose objects nearest to the cups and to `points` (n, 3) are.

        Held objects and the objects `targets` (n,) do not count. The last row is for the targets
        themselves, from the cups.

        Returns:
            (n, NEIGHBOUR_ROWS, 4) float32; see `tpsrl.sim.clearance.Clearance.neighbours`.
        """
        ...

    def object_velocity(self, env_ids: Sequence[int], objects: np.ndarray) -> np.ndarray:
        """Returns the velocity (n, 6) float32 of one object per home, world frame: m/s, rad/s.

        `objects` (n,) are indices into the episodes' objects; -1 gives velocity 0.
        """
        ...

    def snapshot(self, env_id: int) -> Snapshot:
        """Returns a snapshot of a home.

        Raises:
            UserError: the engine cannot take exact snapshots.
        """
        ...

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        """Restores a home exactly to a snapshot.

        Raises:
            UserError: the snapshot does not fit the home, or the engine cannot take exact
                snapshots.
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
        """Returns a shaded colour picture (height, width, 3) uint8.

        `camera` is "third_person" or "head"; `markers` exist only in the picture.
        """
        ...

    def shapes(self, env_id: int) -> list[Shape]:
        """Returns the shapes of a home, for a viewer.

        Raises:
            UserError: the engine has no shapes.
        """
        ...

    def body_poses(self, env_id: int) -> np.ndarray:
        """Returns the poses (m, 7) float32 of the bodies that can move.

        A pose is position (m), then quaternion (w, x, y, z).
        """
        ...

    def close(self) -> None:
        """Frees the engine's resources; safe to call twice."""
        ...
