"""Where the handle of a door or drawer is in an apartment, and how it moves."""

import dataclasses
import functools

import numpy as np

from tpsrl.world.collision import BOX, Bodies
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import Link, link_pose, resolve
from tpsrl.world.state import JOINTS


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """One of `JOINTS` in one layout; world frame, joint positions in rad or m.

    The cup is held on the `face`, the surface under the marker: HAB's markers stand in front of
    it, where the real handle is.
    """

    marker: str
    index: int  # into JOINTS
    link: Link
    origin: np.ndarray  # (3,) of the body
    rotation: np.ndarray  # (3, 3) of the body
    front: str  # name of the box that the face belongs to, "link/box"
    face: np.ndarray  # (3,) the point on the face nearest to the marker, link frame

    @property
    def slides(self) -> bool:
        """A drawer (m), or else a door (rad)."""
        return self.link.joint == "slide"

    @property
    def limit(self) -> float:
        """The farthest that it opens."""
        return self.link.range[1]

    def pose(self, joint: float) -> tuple[np.ndarray, np.ndarray]:
        """Origin (3,) and rotation (3, 3) of the link."""
        pos, turn = link_pose(self.link, joint)
        return self.origin + self.rotation @ pos, self.rotation @ turn

    def point(self, joint: float, across: float = 0.0, up: float = 0.0) -> np.ndarray:
        """A point (3,) of the face, so many metres beside and above the one at the marker."""
        pos, turn = self.pose(joint)
        return pos + turn @ (self.face + np.array([0.0, across, up]))

    def normal(self, joint: float) -> np.ndarray:
        """The direction (3,) in which the face looks: away from the closed body."""
        out: np.ndarray = self.pose(joint)[1][:, 0]
        return out

    def motion(self, joint: float, point: np.ndarray) -> np.ndarray:
        """How a point (3,) that is fixed to the link moves per rad or metre of the joint (3,)."""
        axis: np.ndarray = self.rotation @ np.array(self.link.axis)
        return axis if self.slides else np.cross(axis, point - self.pose(joint)[0])

    def boxes(self, joint: float) -> Bodies:
        """The link's boxes as obstacles."""
        pos, turn = self.pose(joint)
        count = len(self.link.boxes)
        return Bodies(
            np.full(count, BOX, dtype=np.int64),
            np.array([pos + turn @ box.pos for box in self.link.boxes]),
            np.tile(turn, (count, 1, 1)),
            np.array([box.half for box in self.link.boxes]),
        )


@functools.lru_cache(maxsize=256)
def handle(layout: str, marker: str) -> Handle:
    """The handle `marker` in "SET/NAME".

    Raises:
        UserError: there is no such layout or marker.
    """
    layout_set, chosen = resolve(layout)
    body, link = layout_set.link(marker)
    pose = chosen.poses[body]
    under = [
        box
        for box in link.boxes
        if all(abs(link.marker[k] - box.pos[k]) <= box.half[k] for k in (1, 2))
    ]
    front = max(under, key=lambda box: box.pos[0] + box.half[0])
    return Handle(
        marker,
        JOINTS.index(marker),
        link,
        np.array(pose.pos),
        quat_matrix(pose.quat),
        f"{link.name}/{front.name}",
        np.array([front.pos[0] + front.half[0], link.marker[1], link.marker[2]]),
    )
