"""PointNav: drive to a point of the floor and say so (DD-PPO, section 4).

Succeeds when the policy calls stop within 0.2 m of the goal, along the floor; any stop ends the
episode. The reward is DD-PPO's: 2.5 x SPL at success, and at every step what the geodesic distance
to the goal fell, less 0.01. Its agent turns by steps of 10 degrees and drives by steps of 0.25 m,
500 of them; here a step turns up to 4.8 degrees while it drives up to 0.083 m.
"""

import dataclasses
from typing import Any

from skills.core.geometry import array_namespace
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.path_metrics import Path, spl
from skills.core.task import STOPPED, Judgement, TaskSettings, TaskState, View
from skills.navigate.task import Navigate
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavSettings(TaskSettings):
    """What PointNav changes of, and adds to, the settings that all skills share."""

    horizon: int = config.option(500, "control steps until the episode is cut off", minimum=1)
    success: float = config.option(2.5, "reward for success, times SPL")
    slack: float = config.option(0.01, "penalty for each step")
    progress: float = config.option(1.0, "reward for each metre nearer, along the floor")


class PointNav(Navigate):
    """The definition; `SkillGoal.position` is where to go."""

    name = "pointnav"
    settings_type = PointNavSettings
    sensors = full_sensors = ("compass", "velocity")
    follows_path = True

    def reach_m(self, thresholds: SkillThresholds) -> float:
        """The way ends at the goal itself."""
        return 0.0

    def judge(
        self,
        task: TaskState,
        view: View,
        world: WorldState,
        stop: Any,
        settings: PointNavSettings,  # type: ignore[override]
        thresholds: SkillThresholds,
    ) -> Judgement:
        """Rewards coming nearer along the floor, and success by SPL; any stop ends the episode."""
        xp, path = array_namespace(world.base), _path(view)
        success = stop & (path.left < thresholds.pointnav_distance_m)
        return Judgement(
            success=success,
            failure=xp.where(stop & ~success, STOPPED, 0),
            amounts={
                "success": spl(success, path.shortest, path.driven),
                "progress": path.gained,
            },
            rewarded=task.rewarded,
            reached=task.reached,
        )

    def success_parts(
        self,
        goal: SkillGoal,
        view: View,
        world: WorldState,
        stop: bool,
        thresholds: SkillThresholds,
    ) -> dict[str, Margin]:
        """Distance along the floor (m), stop."""
        left = float(_path(view).left[0])
        return {
            "distance": Margin.below(left, thresholds.pointnav_distance_m, "m"),
            "stop": Margin.flag(stop),
        }


def _path(view: View) -> Path:
    if view.path is None:
        raise UserError("pointnav: is judged by the path along the floor, and there is none")
    return view.path
