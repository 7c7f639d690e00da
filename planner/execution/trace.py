"""Trace of an episode: state at each handoff, causes of failure, outcome."""

import copy
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from skills.core.conditions import Margin
from skills.core.interface import SkillGoal
from tpsrl.sim.base import Snapshot
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

TIMEOUT = "timeout"  # `ended_by` of a skill or episode that ran out of steps


@dataclasses.dataclass(frozen=True, slots=True)
class HandoffState:
    """World at a handoff, in metres and radians; `goals` are the margins of the goal's atoms."""

    step: int
    base: tuple[float, ...]  # x, y, yaw
    arm: tuple[float, ...]  # 7 joint positions
    ee_pos: tuple[float, ...]
    held: int  # object index, -1 for none
    held_joint: int  # index into JOINTS of the held handle, -1 for none
    objects: tuple[tuple[float, ...], ...]  # positions in the order of Episode.objects
    joints: tuple[float, ...]  # order of tpsrl.world.state.JOINTS
    goals: dict[str, Margin]

    @staticmethod
    def of(
        world: WorldState, num_objects: int, step: int, goals: dict[str, Margin]
    ) -> "HandoffState":
        """Returns the handoff state of a world of batch one, after `step` control steps."""
        return HandoffState(
            step=step,
            base=tuple(world.base[0].tolist()),
            arm=tuple(world.arm[0].tolist()),
            ee_pos=tuple(world.ee_pos[0].tolist()),
            held=int(world.held[0]),
            held_joint=int(world.held_joint[0]),
            objects=tuple(map(tuple, world.object_pos[0, :num_objects].tolist())),
            joints=tuple(world.joints[0].tolist()),
            goals=goals,
        )


@dataclasses.dataclass(slots=True)
class Stage:
    """One execution of one step of a plan.

    `index` is the step's index in the first plan, which a repeated step keeps; -1 for a step of a
    later plan only. `ended_by` is "success", or why the skill stopped: "timeout", "skill_stop", the
    skill's own failure (`skills.core.skill.FAILURES`), "skill_force" beyond the skill's limits on
    force, "force_limit" or "episode_steps" of the episode; "precondition" if the skill was not run.
    `goal` (the skill's) and `preconditions` are evaluated at the start, `effects` at the end of the
    skill, `after` at the next handoff, with the arm reset. `handed_over`: the effects still held at
    the next handoff and the episode continued. `granted`: an intervention brought the effects
    about.

    `target` is the object whose turn it is (-1: none), `in_hand` whether it was in the hand after
    any of the skill's control steps, `travelled_m` the path length of the base over these steps.
    """

    index: int
    plan: int  # 0 for the first plan, increased with every new plan
    name: str
    skill: str
    action: tuple[str, ...]
    before: HandoffState
    preconditions: dict[str, Margin]
    ended_by: str = ""
    steps: int = 0
    reset_steps: int = 0
    results: dict[str, Margin] = dataclasses.field(default_factory=dict)
    effects: dict[str, Margin] = dataclasses.field(default_factory=dict)
    after: HandoffState | None = None
    force_peak_n: float = 0.0
    force_sum_n: float = 0.0
    goal: SkillGoal = dataclasses.field(default_factory=SkillGoal)
    handed_over: bool = False
    granted: bool = False
    target: int = -1
    in_hand: bool = False
    travelled_m: float = 0.0
    diagnosis: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether the skill was run."""
        return self.ended_by != "precondition"

    @property
    def skill_success(self) -> bool:
        """Success of the skill, by its own thresholds."""
        return self.ended_by == "success"

    @property
    def succeeded(self) -> bool:
        """Whether the plan's effects hold after the skill, by the predicates' wider thresholds."""
        return self.reached and bool(self.effects) and all(m.holds for m in self.effects.values())

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON types."""
        record = plain(dataclasses.asdict(self))
        flags = {
            "reached": self.reached,
            "succeeded": self.succeeded,
            "skill_success": self.skill_success,
        }
        return {**record, **flags}


@dataclasses.dataclass(slots=True)
class Cause:
    """One failure: its stage, predicate, margin and reason.

    `recovered` is set if the missing condition was achieved later.
    """

    stage: int
    name: str
    skill: str
    predicate: str
    margin: float
    unit: str
    reason: str
    step: int
    recovered: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON types."""
        return plain(dataclasses.asdict(self))


@dataclasses.dataclass(slots=True)
class StageMark:
    """When a named stage goal was reached, in control steps since the start; None: never.

    `first` is the step at which its atoms first held together, `in_turn` the first such step at
    which all stage goals before it had been reached in order.
    """

    first: int | None = None
    in_turn: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """Counts of displaced objects: those that ended more than 0.1 m from their start.

    `clutter` counts displaced objects that are not targets, of `clutter_objects`. `targets` counts
    displaced targets that were never in the hand. Objects that stayed in their drawer do not count.
    """

    clutter: int
    clutter_objects: int
    targets: int


@dataclasses.dataclass(slots=True)
class Trace:
    """Record of one episode by the executor.

    `snapshots[i]` is the home at the start of `stages[i]`; the last snapshot, keyed by the number
    of stages, is the home after the final stop. `purposes` are the predicates of the purposes of
    the first plan's steps, `turns` the names of the objects whose turn they are.

    `timeout` is the first timeout of a skill (`planner.execution.timeouts`). `other` is the same
    episode with the other treatment of timeouts: one trace ends at the timeout, the other
    continues; before it both are equal. `other` is None if no skill ran out of steps, or if the
    protocol ends the episode and the executor was not set to continue.
    """

    episode: Episode
    plan: list[str]  # the first plan's stage names
    skills: list[str]  # skill of each of these stages
    stages: list[Stage] = dataclasses.field(default_factory=list)
    causes: list[Cause] = dataclasses.field(default_factory=list)
    goal: dict[str, Margin] = dataclasses.field(default_factory=dict)
    stage_goals: dict[str, StageMark] = dataclasses.field(default_factory=dict)  # of the first plan
    success: bool = False
    ended_by: str = ""  # "stop", "force_limit", "episode_steps", "timeout"
    steps: int = 0
    plans: int = 1
    force_peak_n: float = 0.0
    force_total_n: float = 0.0
    snapshots: dict[int, Snapshot] = dataclasses.field(default_factory=dict)
    moved: Moved | None = None
    timeout: Cause | None = None
    other: "Trace | None" = None
    purposes: list[str] = dataclasses.field(default_factory=list)
    turns: list[str] = dataclasses.field(default_factory=list)

    @property
    def ending(self) -> "Trace":
        """The episode with the first timeout as its end."""
        ended = self.timeout is None or self.ended_by == TIMEOUT or self.other is None
        return self if ended else self.other  # type: ignore[return-value]

    @property
    def ignoring(self) -> "Trace | None":
        """The episode with timeouts ignored; None if it was not run."""
        return self.other if self.timeout is not None and self.ended_by == TIMEOUT else self

    def fork(self) -> "Trace":
        """Returns a copy with the same past that can be continued independently."""
        return dataclasses.replace(
            self,
            stages=[*self.stages[:-1], *map(copy.copy, self.stages[-1:])],
            causes=[copy.copy(cause) for cause in self.causes],
            stage_goals={name: copy.copy(mark) for name, mark in self.stage_goals.items()},
            snapshots=dict(self.snapshots),
        )

    @property
    def first_cause(self) -> Cause | None:
        """First cause of the failure: the earliest cause without recovery; None on success."""
        if self.success:
            return None
        return earliest(cause for cause in self.causes if not cause.recovered)

    def outcomes(self) -> list[dict[str, Any]]:
        """Returns a summary of the last execution of each step of the first plan.

        `reached`: the step was run at least once. `succeeded`: its effects held after the last run.
        `skill_success`: the skill itself succeeded in the last run. `handed_over`: the effects also
        held at the next handoff and the episode continued. `attempts`: number of runs. `turn`:
        number of the object whose turn it is, from 1 (0: none). `in_hand`: that object was in the
        hand in any of the runs. `travelled_m`: path length of the base over all runs.
        """
        return [self._outcome(index) for index in range(len(self.plan))]

    def _outcome(self, index: int) -> dict[str, Any]:
        runs = [stage for stage in self.stages if stage.index == index and stage.reached]
        last = runs[-1] if runs else None
        return {
            "index": index,
            "name": self.plan[index],
            "skill": self.skills[index],
            "reached": last is not None,
            "succeeded": last is not None and last.succeeded,
            "skill_success": last is not None and last.skill_success,
            "handed_over": last is not None and last.handed_over,
            "ended_by": last.ended_by if last else "",
            "attempts": len(runs),
            "steps": sum(stage.steps + stage.reset_steps for stage in runs),
            "purpose": self.purposes[index] if self.purposes else "",
            "turn": self._turn(index),
            "in_hand": any(stage.in_hand for stage in runs),
            "travelled_m": sum(stage.travelled_m for stage in runs),
        }

    def _turn(self, index: int) -> int:
        order = list(dict.fromkeys(filter(None, self.turns)))
        return 1 + order.index(self.turns[index]) if self.turns and self.turns[index] else 0

    def to_json(self) -> dict[str, Any]:
        """Returns the trace as JSON types, without snapshots; `other` only from the timeout on."""
        other = None
        if self.other is not None:
            whole = self.other.to_json()
            common = min(len(self.stages), len(self.other.stages)) - 1
            other = {**whole, "stages": whole["stages"][common:]}
        return {**self._to_json(), "other": other}

    def _to_json(self) -> dict[str, Any]:
        cause = self.first_cause
        return {
            "episode": self.episode.id,
            "scenario": self.episode.scenario,
            "split": self.episode.split,
            "layout": self.episode.layout,
            "success": self.success,
            "ended_by": self.ended_by,
            "first_cause": cause.to_json() if cause else None,
            "steps": self.steps,
            "plans": self.plans,
            "force_peak_n": self.force_peak_n,
            "force_total_n": self.force_total_n,
            "moved": None if self.moved is None else dataclasses.asdict(self.moved),
            "timeout": None if self.timeout is None else self.timeout.to_json(),
            "goal": plain({name: dataclasses.asdict(m) for name, m in self.goal.items()}),
            "stage_goals": {n: dataclasses.asdict(m) for n, m in self.stage_goals.items()},
            "outcomes": self.outcomes(),
            "causes": [cause.to_json() for cause in self.causes],
            "stages": [stage.to_json() for stage in self.stages],
        }


def earliest(causes: Iterable[Cause]) -> Cause | None:
    """Returns the cause with the smallest step; of several, the first one noted."""
    return min(causes, key=lambda cause: cause.step, default=None)


def plain(value: Any) -> Any:
    """Converts a value to JSON types; non-finite numbers become null, since JSON has none."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value if value is None else str(value)
