"""Recordings of episodes for the viewer: one moment for each control step."""

import dataclasses
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from eval.running.film import doing, margin_text, occupation
from planner.execution.progress import StepInfo
from skills.core.conditions import Margin
from tpsrl.render.shapes import Shape
from tpsrl.render.video import colour_depth
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

_DEPTH_SIDE = 64  # pixels, as in the depth images of policies
_START = "start"


@dataclasses.dataclass(frozen=True, slots=True)
class ShownCondition:
    """A condition of success as text ("rest: 0.12 m short"), and whether it holds."""

    text: str
    holds: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """State after one control step.

    Attributes:
        step: control step of the episode
        stage: index of the plan's step; -1: before the first
        doing: the robot's activity ("pick: 12 of 200")
        poses: (m, 7) float32, of the moving bodies (`Simulator.body_poses`)
        base: x, y (m) and yaw (rad)
        occupation: what the robot holds, or searches for
        force_n: force of the control step (N)
        purpose: effect of the plan's step
        conditions: of success of the current skill
        rewards: terms of the step's reward, if a skill runs in isolation
        depth: (64, 64, 3) uint8, the head camera's depth in colours
    """

    step: int
    stage: int
    doing: str
    poses: np.ndarray
    base: tuple[float, float, float]
    occupation: str
    force_n: float
    purpose: ShownCondition | None
    conditions: tuple[ShownCondition, ...]
    rewards: Mapping[str, float]
    depth: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineMark:
    """A mark on the timeline: the index of a moment, and a text."""

    moment: int
    text: str


class RecordingStopped(Exception):
    """Ends an episode whose recording was stopped."""


class EpisodeRecording:
    """Recording of an episode, written by one thread while others read it.

    `moments` and `marks` only grow. `outcome` is how the episode ended, "" until then. Setting
    `stopped` ends the episode at its next step.
    """

    def __init__(
        self, agent: str, episode: Episode, shapes: Sequence[Shape], plan: Sequence[str]
    ) -> None:
        self.agent, self.episode = agent, episode
        self.shapes, self.plan = list(shapes), list(plan)
        self.moments: list[Moment] = []
        self.marks: list[TimelineMark] = []
        self.outcome = ""
        self.over, self.stopped = threading.Event(), threading.Event()

    def mark(self, step: int, text: str) -> None:
        """Marks the moment after a control step, or the last one before it."""
        before = [i for i, moment in enumerate(self.moments) if moment.step <= step]
        self.marks.append(TimelineMark(before[-1] if before else 0, text))

    def end(self, outcome: str) -> None:
        """Stores how the episode ended."""
        if self.moments:
            self.marks.append(TimelineMark(len(self.moments) - 1, f"end: {outcome}"))
        self.outcome = outcome
        self.over.set()


class EpisodeRecorder:
    """Records one home of a simulator, beginning with its current state."""

    def __init__(self, simulator: Simulator, recording: EpisodeRecording, env_id: int = 0) -> None:
        self.recording = recording
        self._simulator, self._env = simulator, env_id
        self._add(simulator.state([env_id]), None)

    def on_step(self, world: WorldState, info: StepInfo) -> None:
        """Callback of executors and environments after each control step.

        Raises:
            RecordingStopped: the recording was stopped.
        """
        if self.recording.stopped.is_set():
            raise RecordingStopped
        stages = [moment.stage for moment in self.recording.moments[-1:]]
        self._add(world, info)
        if stages != [info.index]:
            index = len(self.recording.moments) - 1
            self.recording.marks.append(TimelineMark(index, f"{info.index + 1}. {info.action}"))

    def _add(self, world: WorldState, info: StepInfo | None) -> None:
        recording = self.recording
        x, y, yaw = (float(value) for value in world.base[0])
        depth = self._simulator.depth([self._env], _DEPTH_SIDE, _DEPTH_SIDE)[0]
        recording.moments.append(
            Moment(
                step=0 if info is None else info.episode_step,
                stage=-1 if info is None else info.index,
                doing=_START if info is None else doing(info),
                poses=self._simulator.body_poses(self._env),
                base=(x, y, yaw),
                occupation=occupation(recording.episode, world),
                force_n=float(world.force[0]),
                purpose=None if info is None else _condition(info.predicate, info.margin),
                conditions=() if info is None else _conditions(info.conditions),
                rewards={} if info is None else dict(info.rewards),
                depth=colour_depth(depth),
            )
        )


def _conditions(margins: Mapping[str, Margin]) -> tuple[ShownCondition, ...]:
    return tuple(_condition(name, m) for name, m in margins.items() if name != "success")


def _condition(name: str, margin: Margin) -> ShownCondition:
    return ShownCondition(margin_text(name, margin), margin.holds)
