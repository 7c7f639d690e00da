"""Target poses of the cup, and the approach to them."""

import dataclasses
import math

import numpy as np

from tpsrl.world.collision import ArmChecker
from tpsrl.world.kinematics import inverse
from tpsrl.world.reach import point_to_base, to_base

_LINE_M, _LINE_RAD = 0.04, 0.5  # spacing of waypoints on a line, and their largest joint difference


@dataclasses.dataclass(frozen=True, slots=True)
class CupTarget:
    """Target pose of the cup with a free rotation about one axis, and a ready pose; world frame.

    At the target the point `offset` (3,) of the cup's frame is at `point` (3,) and the direction
    `axis_cup` (3,) of that frame is `axis` (3,). The ready pose is the target moved by `shift`
    (3,).
    """

    point: np.ndarray
    axis_cup: np.ndarray
    axis: np.ndarray
    offset: np.ndarray
    shift: np.ndarray

    def touch(
        self, base: np.ndarray, checker: ArmChecker, margin: float, near: np.ndarray
    ) -> np.ndarray | None:
        """Returns a free posture (7,) for the target at a base pose (3,), or None.

        `near` (7,) is the initial posture of the search.
        """
        point, axis = point_to_base(base, self.point), to_base(base, self.axis)
        ok, q = inverse(near, point, self.axis_cup, axis, near, self.offset, 60, 0.3)
        return q if ok and checker.free(q, margin) else None

    def line(
        self, base: np.ndarray, checker: ArmChecker, margin: float, start: np.ndarray
    ) -> np.ndarray | None:
        """Returns postures (k, 7) along the straight line from ready pose to target, or None.

        `start` (7,) is the posture at about the ready pose.
        """
        count = max(1, math.ceil(float(np.linalg.norm(self.shift)) / _LINE_M))
        postures = []
        for i in range(count - 1, -1, -1):
            there = dataclasses.replace(self, point=self.point + i / count * self.shift)
            q = there.touch(base, checker, margin, start)
            if q is None or float(np.abs(q - start).max()) > _LINE_RAD:
                return None
            postures.append(q)
            start = q
        return np.array(postures)


@dataclasses.dataclass(frozen=True, slots=True)
class CupTargets:
    """Target poses for several stances, one a row; fields as in `CupTarget`, world frame.

    `row` is the index of the stance. `tip` and `pointing` are the tip and direction of the cup at
    the touch. `extra` is the additional cost of a pose in control steps. Poses of the same `kind`
    are alike. `shares` are the shares of the shift that are tried in order, each with its
    additional cost in control steps.
    """

    row: np.ndarray  # (m,)
    point: np.ndarray  # (m, 3)
    axis_cup: np.ndarray  # (m, 3)
    axis: np.ndarray  # (m, 3)
    offset: np.ndarray  # (3,)
    shift: np.ndarray  # (m, 3)
    tip: np.ndarray  # (m, 3)
    pointing: np.ndarray  # (m, 3)
    extra: np.ndarray  # (m,)
    kind: np.ndarray  # (m,)
    shares: tuple[tuple[float, float], ...]

    def at(self, i: int, share: float = 1.0) -> CupTarget:
        """Returns the target in row `i`, with a share of its shift."""
        return CupTarget(
            self.point[i], self.axis_cup[i], self.axis[i], self.offset, share * self.shift[i]
        )
