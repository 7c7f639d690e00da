"""Videos of episodes: third-person view, head depth, and the current step's missing condition.

The last frame is held under the verdict: success, or why the episode failed.
"""

from pathlib import Path
from types import TracebackType

import numpy as np

from eval.analysing.results import generic
from planner.execution.progress import RESET_ARM, SKILL, StepInfo
from skills.core.conditions import Margin
from tpsrl.render.cameras import Sphere
from tpsrl.render.video import Caption, VideoWriter, compose_frame, with_caption
from tpsrl.sim.base import Simulator
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.episode import Episode
from tpsrl.world.state import JOINTS, WorldState

_SPEED = 2.0  # times real time
_DEPTH_SIDE = 128
_GOAL, _OBJECT, _OTHER = (0.15, 0.85, 0.35), (1.0, 0.25, 0.75), (0.55, 0.75, 0.95)
_GOAL_RADIUS_M, _OBJECT_RADIUS_M, _OTHER_RADIUS_M = 0.06, 0.04, 0.03
_OVER_OBJECT_M = 0.18
_VERDICT_S = 2.0  # for which the verdict is shown


class Film:
    """Writes every `stride`-th control step into an mp4 file; a context manager."""

    def __init__(
        self, simulator: Simulator, episode: Episode, path: Path, stride: int, env_id: int = 0
    ) -> None:
        self._simulator, self._episode, self._env = simulator, episode, env_id
        self._writer = VideoWriter(path, fps=_SPEED * CONTROL_HZ / stride, every=stride)
        self._last: np.ndarray | None = None  # the frame added last

    def __enter__(self) -> "Film":
        self._writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def on_step(self, world: WorldState, info: StepInfo) -> None:
        """Callback after each control step, see `planner.execution.progress.OnStep`."""

        def drawn() -> np.ndarray:
            self._last = self.frame(world, info)
            return self._last

        self._writer.add(drawn)

    def end(self, steps: int, ended_by: str, missing: str | None) -> None:
        """Holds the last frame under the verdict.

        Args:
            steps: control steps of the episode
            ended_by: reason of its end, as in the report
            missing: what did not hold, None after a success
        """
        if self._last is None:
            return
        outcome = "succeeded" if missing is None else f"failed ({ended_by.replace('_', ' ')})"
        count = "1 step" if steps == 1 else f"{steps:,} steps"
        title = f"{outcome} after {count}, {steps / CONTROL_HZ:.1f} s"
        result = ("success", True) if missing is None else (missing, False)
        self._writer.hold(with_caption(self._last, Caption(title, [result])), _VERDICT_S)

    def frame(self, world: WorldState, info: StepInfo) -> np.ndarray:
        """Returns a frame (H, W, 3) uint8 of the home, whose state `world` and `info` describe."""
        spheres = markers(self._episode, world, info.object)
        picture = self._simulator.render(self._env, "third_person", markers=spheres)
        depth = self._simulator.depth([self._env], _DEPTH_SIDE, _DEPTH_SIDE)[0]
        return compose_frame(picture, depth, caption(self._episode, world, info))


def markers(episode: Episode, world: WorldState, current: int) -> list[Sphere]:
    """Returns a sphere at every goal and one above the object `current` until it is held.

    The goal of the current object is green and larger than the others, which are pale blue. The
    marker of the object is pink. `world` is of batch one.
    """
    spheres = []
    for target in episode.targets:
        mine = target.object == current
        radius, colour = (_GOAL_RADIUS_M, _GOAL) if mine else (_OTHER_RADIUS_M, _OTHER)
        spheres.append(Sphere(target.goal, radius, colour))
    if current >= 0 and world.held[0] != current:
        x, y, z = (float(v) for v in world.object_pos[0, current])
        spheres.append(Sphere((x, y, z + _OVER_OBJECT_M), _OBJECT_RADIUS_M, _OBJECT))
    return spheres


def caption(episode: Episode, world: WorldState, info: StepInfo) -> Caption:
    """Returns the caption of a frame: the step, its predicate with margin, the robot's state."""
    return Caption(
        title=f"{info.index + 1}/{info.total}  {info.action}",
        results=[(margin_text(info.predicate, info.margin), info.margin.holds)],
        status=[
            doing(info),
            f"step {info.episode_step}, {info.episode_step / CONTROL_HZ:.1f} s",
            occupation(episode, world),
            f"force {float(world.force[0]):.0f} N",
        ],
        legend=[("goal", _GOAL), ("object", _OBJECT), (f"plays at {_SPEED:g}x", None)],
    )


def doing(info: StepInfo) -> str:
    """Returns the robot's activity as text: "pick: 12 of 200"."""
    what = {SKILL: info.skill, RESET_ARM: "arm back to rest"}.get(info.phase, info.phase)
    return f"{what}: {info.phase_step} of {info.phase_limit}"


def occupation(episode: Episode, world: WorldState) -> str:
    """Returns what the robot holds, or the category that it searches for in ObjectNav."""
    if episode.category:
        return f"searches: {episode.category.replace('_', ' ')}"
    return f"holds {in_hand(episode, world)}"


def in_hand(episode: Episode, world: WorldState) -> str:
    """Returns the name of the object or handle that the robot holds."""
    held, joint = int(world.held[0]), int(world.held_joint[0])
    if held >= 0:
        return episode.objects[held].name
    return "nothing" if joint < 0 else f"the handle {JOINTS[joint]}"


def margin_text(predicate: str, margin: Margin) -> str:
    """Returns a predicate with its margin as text: "robot_at(obj_0, robot_0): 1.20 m short"."""
    name = generic(predicate)
    if margin.unit == "bool":
        return f"{name}: {'yes' if margin.holds else 'no'}"
    size = f"{abs(margin.margin):.2f} {margin.unit}"
    return f"{name}: {size} to spare" if margin.holds else f"{name}: {size} short"
