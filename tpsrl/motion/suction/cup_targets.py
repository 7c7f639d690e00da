"""Cup poses to bring the cup to, and how to come to them."""

import dataclasses
import math

import numpy as np

from tpsrl.world.collision import ArmChecker
from tpsrl.world.kinematics import inverse
from tpsrl.world.reach import point_to_base, to_base

_LINE_M, _LINE_RAD = 0.04, 0.5  # way-points of a straight line, and how far apart they may be


@dataclasses.dataclass(frozen=True, slots=True)
class CupTarget:
    """A cup pose, free to turn about one axis, and how to come to it; world frame.

    The point `offset` (3,) of the cup's frame is to be at `point` (3,), the direction `axis_cup`
    of that frame is to be `axis`; the ready pose is the same, moved by `shift`.
    """

    point: np.ndarray
    axis_cup: np.ndarray
    axis: np.ndarray
    offset: np.ndarray
    shift: np.ndarray

    def touch(
        self, base: np.ndarray, checker: ArmChecker, margin: float, near: np.ndarray
    ) -> np.ndarray | None:
        """The free posture (7,) for the pose that is found from one nearby, or None.

        From a base pose (3,).
        """
        point, axis = point_to_base(base, self.point), to_base(base, self.axis)
        ok, q = inverse(near, point, self.axis_cup, axis, near, self.offset, 60, 0.3)
        return q if ok and checker.free(q, margin) else None

    def line(
        self, base: np.ndarray, checker: ArmChecker, margin: float, start: np.ndarray
    ) -> np.ndarray | None:
        """Postures (k, 7) along the straight way from about the ready pose to the pose, or None."""
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
    """Cup poses from several stances, m rows; fields as in `CupTarget`, world frame.

    `row` says which stance each belongs to. With its tip at `tip` and pointing along `pointing` the
    cup is at the touch. `extra` are steps that a pose costs beside the way there; `kind` says which
    poses are alike. `shares` of the shift are tried in turn, each with steps that it costs beside.
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
        """One of them, with a share of its shift."""
        return CupTarget(
            self.point[i], self.axis_cup[i], self.axis[i], self.offset, share * self.shift[i]
        )
