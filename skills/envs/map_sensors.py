"""What a policy senses with a map of its home: the way along the floor, a scan, a handle's face.

One object for training and deployment alike, so that a policy is shown the same by both. The map
has doors and drawers where they stand when the skill begins.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skills.core.path_metrics import PathProgress
from skills.core.sensors import FACING, SCAN, WAY, Readings
from skills.core.skill import Skill
from skills.core.state import Goals, TaskState
from skills.envs.path_meter import PathMeter, check_array
from tpsrl.errors import UserError
from tpsrl.world.floor import floor_map, rounded
from tpsrl.world.handles import handle
from tpsrl.world.scan import Scanner
from tpsrl.world.state import JOINTS, WorldState

_SCANNED = "scan_joints"  # of the arrays: where doors and drawers are on the scanner's map


class MapSensors:
    """Map, way, scan and handle of n homes in which one skill is run.

    Args:
        skill: that is run
        names: of the policy's sensors
        num_homes: n
        thresholds: the skill's own
    """

    def __init__(self, skill: Skill, names: Sequence[str], num_homes: int, thresholds: Any) -> None:
        reach_m = skill.reach_m(thresholds)
        measured = reach_m is not None or WAY in names
        self.meter = PathMeter(num_homes, reach_m or 0.0, skill.surveys_floor) if measured else None
        self._scanner = Scanner(num_homes) if SCAN in names else None
        self._scanned = np.zeros((num_homes, len(JOINTS)))
        self._facing = np.zeros(num_homes) if FACING in names else None
        self._shows_way, self._follows = WAY in names, skill.follows_path

    def begin(
        self,
        homes: Sequence[int],
        layouts: Sequence[str],
        goals: Goals | TaskState,
        world: WorldState,
    ) -> None:
        """The skill begins in m homes with these layouts, goals and present worlds."""
        if self.meter is not None:
            self.meter.begin(homes, layouts, goals.position, world)
        for row, (home, layout) in enumerate(zip(homes, layouts, strict=True)):
            self._map(home, layout, np.asarray(world.joints[row]))
            self._face(home, layout, int(goals.joint[row]), world.joints[row])

    def drive(self, homes: Sequence[int], world: WorldState) -> PathProgress | None:
        """Adds the control step that led to these worlds; the ways, where they are judged."""
        if self.meter is None:
            return None
        self.meter.drive(homes, world)
        return self.path(homes)

    def path(self, homes: Sequence[int]) -> PathProgress | None:
        """The ways of homes, for a skill that is judged by them."""
        return self.meter.path(homes) if self.meter is not None and self._follows else None

    def read(self, homes: Sequence[int], world: WorldState) -> Readings:
        """What is sensed from where the bases are."""
        readings = Readings()
        if self._shows_way and self.meter is not None:
            readings.way = self.meter.ahead(homes, world.base)
        if self._scanner is not None:
            readings.scan = self._scanner.ranges(homes, world.base)
        if self._facing is not None:
            readings.facing = self._facing[np.asarray(homes)]
        return readings

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """What a home is on its way with, as numpy copies by name, for snapshots."""
        arrays = {} if self.meter is None else self.meter.to_arrays(home)
        if self._scanner is not None:
            arrays[_SCANNED] = self._scanned[home].copy()
        if self._facing is not None:
            arrays[FACING] = self._facing[home : home + 1].copy()
        return arrays

    def restore(
        self, home: int, arrays: Mapping[str, np.ndarray], layout: str, goal: np.ndarray
    ) -> None:
        """Puts a home back to where `to_arrays` said it was, on its way to a goal (3,).

        Raises:
            UserError: an array is missing or unknown, of another shape, or not finite.
        """
        arrays = dict(arrays)
        scanned, facing = arrays.pop(_SCANNED, None), arrays.pop(FACING, None)
        for name, array, kept, shape in (
            (_SCANNED, scanned, self._scanner, (len(JOINTS),)),
            (FACING, facing, self._facing, (1,)),
        ):
            if (array is None) != (kept is None):
                raise UserError(f"path: array {name} missing or unknown")
            if array is not None:
                check_array(name, array, shape)
        if self.meter is not None:
            self.meter.restore(home, arrays, layout, goal)
        elif arrays:
            raise UserError(f"path: arrays {', '.join(sorted(arrays))} unknown")
        if scanned is not None:
            self._map(home, layout, scanned)
        if facing is not None and self._facing is not None:
            self._facing[home] = facing[0]

    def _map(self, home: int, layout: str, joints: np.ndarray) -> None:
        if self._scanner is not None:
            self._scanned[home] = joints
            self._scanner.set(home, floor_map(layout, joints=rounded(joints)))

    def _face(self, home: int, layout: str, joint: int, joints: np.ndarray) -> None:
        """Remembers which way the face of a joint's handle looks, if there is one."""
        if self._facing is not None and joint >= 0:
            normal = handle(layout, JOINTS[joint]).normal(float(joints[joint]))
            self._facing[home] = np.arctan2(normal[1], normal[0])
