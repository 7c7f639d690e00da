"""Films an episode: third person beside head depth, with what the current step still lacks."""

import colorsys
from pathlib import Path
from types import TracebackType

import numpy as np

from eval.results import generic
from planner.executor import StepInfo
from skills.base import Margin
from tpsrl.sim.base import Simulator, Sphere
from tpsrl.video import Caption, VideoWriter, compose_frame
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

_SPEED = 2.0  # times real time
_DEPTH_SIDE = 128
_GOAL_RADIUS_M, _OBJECT_RADIUS_M = 0.04, 0.025
_OVER_OBJECT_M = 0.16


class Film:
    """Records every `stride`-th control step into an mp4; a context manager.

    A target and its goal carry markers of one colour: a sphere at the goal, and a smaller one that
    hovers over the object.
    """

    def __init__(
        self, simulator: Simulator, episode: Episode, path: Path, stride: int, env_id: int = 0
    ) -> None:
        self._simulator, self._episode, self._env = simulator, episode, env_id
        self._writer = VideoWriter(path, fps=_SPEED * CONTROL_HZ / stride, every=stride)

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
        """What the executor calls after each control step."""
        self._writer.add(lambda: self._frame(world, info))

    def _frame(self, world: WorldState, info: StepInfo) -> np.ndarray:
        spheres = markers(self._episode, world)
        picture = self._simulator.render(self._env, "third_person", markers=spheres)
        depth = self._simulator.depth([self._env], _DEPTH_SIDE, _DEPTH_SIDE)[0]
        return compose_frame(picture, depth, caption(self._episode, world, info))


def markers(episode: Episode, world: WorldState) -> list[Sphere]:
    """The spheres of goals and targets, for a world of batch one."""
    spheres = []
    for number, target in enumerate(episode.targets):
        colour = colorsys.hsv_to_rgb(number / len(episode.targets), 0.75, 1.0)
        spheres.append(Sphere(target.goal, _GOAL_RADIUS_M, colour))
        x, y, z = (float(v) for v in world.object_pos[0, target.object])
        spheres.append(Sphere((x, y, z + _OVER_OBJECT_M), _OBJECT_RADIUS_M, colour))
    return spheres


def caption(episode: Episode, world: WorldState, info: StepInfo) -> Caption:
    """The step, its predicate with margin, and the state of the robot."""
    held = int(world.held[0])
    doing = {"skill": info.skill, "reset_arm": "arm back to rest"}.get(info.phase, info.phase)
    return Caption(
        title=f"{info.index + 1}/{info.total}  {info.action}",
        results=[(margin_text(info.predicate, info.margin), info.margin.holds)],
        status=[
            f"{doing}: {info.phase_step} of {info.phase_limit}",
            f"step {info.episode_step}, {info.episode_step / CONTROL_HZ:.1f} s",
            f"holds {episode.objects[held].name if held >= 0 else 'nothing'}",
            f"force {float(world.force[0]):.0f} N",
        ],
    )


def margin_text(predicate: str, margin: Margin) -> str:
    """A predicate as a frame says it: "robot_at(obj_0, robot_0): 1.20 m short"."""
    name = generic(predicate)
    if margin.unit == "bool":
        return f"{name}: {'yes' if margin.holds else 'no'}"
    size = f"{abs(margin.margin):.2f} {margin.unit}"
    return f"{name}: {size} to spare" if margin.holds else f"{name}: {size} short"
