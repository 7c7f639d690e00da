"""Handles of doors and drawers in an apartment: their positions and motions."""

import dataclasses
import functools

import numpy as np

from tpsrl.world.collision import BOX, Bodies
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import Link, link_pose, resolve
from tpsrl.world.state import JOINTS


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """Handle of one of `JOINTS` in one layout; world frame, joint positions in rad or m.

    The cup holds the `face`, the surface behind the marker. HAB's markers are in front of that
    surface, where the real handle is.
    """

    marker: str
    index: int  # into JOINTS
    link: Link
    origin: np.ndarray  # (3,) of the body
    rotation: np.ndarray  # (3, 3) of the body
    front: str  # name of the box with the face, "link/box"
    face: np.ndarray  # (3,) the point on the face nearest to the marker, link frame

    @property
    def slides(self) -> bool:
        """Whether the joint is a drawer (m); otherwise it is a door (rad)."""
        return self.link.joint == "slide"

    @property
    def limit(self) -> float:
        """Joint position when fully open, rad or m."""
        return self.link.range[1]

    def pose(self, joint: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns origin (3,) and rotation (3, 3) of the link."""
        pos, turn = link_pose(self.link, joint)
        return self.origin + self.rotation @ pos, self.rotation @ turn

    def point(self, joint: float, across: float = 0.0, up: float = 0.0) -> np.ndarray:
        """Returns the point (3,) of the face `across` and `up` metres from that at the marker."""
        pos, turn = self.pose(joint)
        return pos + turn @ (self.face + np.array([0.0, across, up]))

    def normal(self, joint: float) -> np.ndarray:
        """Returns the outward normal (3,) of the face, away from the body when closed."""
        out: np.ndarray = self.pose(joint)[1][:, 0]
        return out

    def motion(self, joint: float, point: np.ndarray) -> np.ndarray:
        """Returns the velocity (3,) of a point (3,) on the link per rad or metre of the joint."""
        axis: np.ndarray = self.rotation @ np.array(self.link.axis)
        return axis if self.slides else np.cross(axis, point - self.pose(joint)[0])

    def boxes(self, joint: float) -> Bodies:
        """Returns the link's boxes as obstacles."""
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
    """Returns the handle `marker` in layout "SET/NAME".

    Raises:
        UserError: the layout or marker is unknown.
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
