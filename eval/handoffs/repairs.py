"""Counterfactual repairs of handoffs: the course of an episode after a better handoff.

There are two kinds. `state`: a step has brought about its effect, and base pose, arm, slip in the
hand and articulation are replaced by those of a start state of the next skill, drawn for the
current home. `effect`: an effect that a step has not brought about is granted, or a fact that the
next step needs and that was lost.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from eval.handoffs import worlds
from planner.execution.execution import FORCE_LIMIT, Execution
from planner.execution.trace import Stage
from planner.plan import Plan, PlanStep, skill_goal
from planner.predicates import Atom
from skills.core.interface import SkillGoal
from skills.spec import SkillSpec
from skills.starts.room import near
from skills.starts.start import Start
from tpsrl.errors import RunError
from tpsrl.sim.base import Overlap
from tpsrl.world.episode import Episode

Kind = Literal["state", "effect"]
KINDS: tuple[Kind, ...] = ("state", "effect")
Handoff = tuple[str, str]  # skill before the handoff, skill after it
END = "end"  # in the place of a skill after the last step

_DRAWS = 40  # attempts to draw a start state
_STREAM = 30_000  # random stream of these draws


def handoff_type(plan: Plan, index: int) -> Handoff:
    """Returns the type of the handoff from step `index` of a plan to the next step."""
    after = plan[index + 1].skill if index + 1 < len(plan) else END
    return plan[index].skill, after


def rng_of(episode: str, index: int) -> np.random.Generator:
    """Returns the random generator of an episode's step `index`, the same in all continuations."""
    digest = hashlib.sha256(f"{episode}|{index}".encode()).digest()
    return np.random.default_rng((_STREAM, *np.frombuffer(digest[:16], dtype=np.uint32).tolist()))


def starts_on(
    spec: SkillSpec, record: Episode, goal: SkillGoal, rng: np.random.Generator
) -> Iterator[Start]:
    """Yields start states of a skill for a goal in a given home.

    They come from `StartStates.towards` if the skill's distribution has it. Otherwise the robot is
    near the target of the goal and faces it; there are none if the target has no position.
    """
    towards = getattr(spec.start_states(), "towards", None)
    if towards is not None:
        draw = towards(record, goal, rng)
    else:
        point = _about(record, goal)
        if point is None:
            return
        draw = near(record, rng, point, goal, record.held)
    for attempt in range(_DRAWS):
        start = draw(attempt)
        if start is not None:
            yield start


def _about(record: Episode, goal: SkillGoal) -> Sequence[float] | None:
    """Returns the position (m) of a goal's target in the home of a record."""
    if goal.position is not None:
        return goal.position
    if goal.object >= 0:
        return record.objects[goal.object].pos
    return worlds.marker_position(record, goal.marker).tolist() if goal.marker else None


class Repair:
    """An intervention that repairs the handoffs of given types.

    After a run `met` has the types with something to repair, including those not in `types`, and
    `applied` the indices of the steps before which a repair was made.

    Args:
        kind: "state" or "effect"
        types: types of the handoffs to repair
        opened: opening (rad, m) of doors and drawers once a plan has opened them, by marker
    """

    def __init__(self, kind: Kind, types: frozenset[Handoff], opened: Mapping[str, float]) -> None:
        self.kind, self.types, self.opened = kind, types, opened
        self.met: set[Handoff] = set()
        self.applied: list[int] = []
        self._force_before_n = 0.0

    def before(self, execution: Execution, step: PlanStep | None) -> None:
        """See `planner.execution.intervention.Intervention`."""
        self._force_before_n = float(execution.world.force_total[0])
        index = len(execution.plan) if step is None else step.index
        if index == 0:
            return
        handoff = handoff_type(execution.plan, index - 1)
        if self.kind == "effect":
            self._restore(execution, step, handoff)
        elif step is not None and execution.trace.stages[-1].handed_over:
            self.met.add(handoff)
            if handoff in self.types and self._new_state(execution, step):
                self.applied.append(index)

    def grant(self, execution: Execution, step: PlanStep, stage: Stage) -> bool:
        """See `planner.execution.intervention.Intervention`."""
        handoff = handoff_type(execution.plan, step.index)
        if self.kind != "effect" or not stage.reached:
            return False
        self.met.add(handoff)
        if handoff not in self.types:
            return False
        facts = [(atom, True) for atom in step.adds]
        following = step.index + 1
        after = execution.plan[following] if following < len(execution.plan) else None
        if not _bring_about(execution, facts, after, self.opened):
            return False
        if execution.over == FORCE_LIMIT:
            execution.forget_end(self._force_before_n)
        self.applied.append(following)
        return True

    def _new_state(self, execution: Execution, step: PlanStep) -> bool:
        """Puts the robot into a start state of the step's skill; returns whether one was found."""
        record = worlds.as_record(execution.episode, execution.world)
        record = _articulated(record, execution, step.index, self.opened)
        spec = execution.executor.spec(step.skill)
        drives = spec.definition.reach_m(execution.executor.thresholds.of(step.skill)) is not None
        if drives and _replaced(execution, record):
            return True  # a skill that drives can start anywhere, so the base stays
        return _draw_start(execution, record, step)

    def _restore(self, execution: Execution, step: PlanStep | None, handoff: Handoff) -> None:
        """Grants lost facts: preconditions of a step, or at the end those of the goal.

        Effects that an earlier step has not brought about are not lost: they are granted at the end
        of that step.
        """
        facts = execution.facts()
        missing: list[tuple[Atom, bool]] = []
        if step is None:
            goal = execution.plan.problem.goal
            missing = [(atom, True) for atom in goal if not facts.atom(atom).holds]
        else:
            for clause in step.preconditions:
                if not facts.clause(clause).holds:
                    missing.append((clause[-1].atom, clause[-1].holds))
        index = len(execution.plan) if step is None else step.index
        missing = [fact for fact in missing if _was_there(execution, *fact, index)]
        if not missing or not execution.trace.stages[-1].handed_over:
            return
        self.met.add(handoff)
        if handoff in self.types and _bring_about(execution, missing, step, self.opened):
            self.applied.append(index)


def isolated_start(execution: Execution, step: PlanStep, opened: Mapping[str, float]) -> bool:
    """Puts a new execution's home into an isolated start of a step.

    The home has all effects of the steps before, and the robot is in a start state of the step's
    skill.

    Returns:
        Whether a start state was found.
    """
    record = worlds.planned(execution.episode, execution.plan, step.index, opened)
    return _draw_start(execution, record, step, any_hold=True)


def _draw_start(
    execution: Execution, record: Episode, step: PlanStep, any_hold: bool = False
) -> bool:
    """Replaces the home by a record with the robot in a start state of a step's skill.

    The held object stays the same unless `any_hold`: picking an object is an effect of a step, and
    not part of a state.
    """
    goal = _goal_in(execution, record, step)
    rng = rng_of(execution.episode.id, step.index)
    spec = execution.executor.spec(step.skill)
    try:
        starts = (start.episode for start in starts_on(spec, record, goal, rng))
        return any(
            _replaced(execution, start) for start in starts if any_hold or start.held == record.held
        )
    except RunError:
        return False


def _goal_in(execution: Execution, record: Episode, step: PlanStep) -> SkillGoal:
    """Returns the goal of a step's skill in the home of a record."""
    world, entities = execution.world, execution.plan.problem.entities
    world = dataclasses.replace(
        world,
        object_pos=np.array([[o.pos for o in record.objects]]),
        marker_pos=worlds.marker_positions(record, world)[None],
    )
    return skill_goal(step, entities, world)


def _was_there(execution: Execution, atom: Atom, holds: bool, index: int) -> bool:
    """Returns whether the steps before `index` had made an atom true or false.

    An atom that no step makes counts as given from the start.
    """
    makers = [
        s.index for s in execution.plan.steps[:index] if atom in (s.adds if holds else s.deletes)
    ]
    if not makers:
        return True
    last = [stage for stage in execution.trace.stages if stage.index == makers[-1]]
    return bool(last) and last[-1].handed_over


def _bring_about(
    execution: Execution,
    facts: list[tuple[Atom, bool]],
    after: PlanStep | None,
    opened: Mapping[str, float],
) -> bool:
    """Makes facts true.

    The base stays in place unless a fact requires another position or the home cannot be changed
    around it. It is then put where the next step's skill starts.
    """
    record = worlds.as_record(execution.episode, execution.world)
    entities = execution.plan.problem.entities
    for atom, holds in facts:
        record = worlds.with_fact(record, atom, holds, entities, opened)
    moves = any(
        atom[0] == "robot_at" and not execution.facts().atom(atom).holds for atom, _ in facts
    )
    if not moves and _replaced(execution, record):
        return True
    return after is not None and _draw_start(execution, record, after)


def _articulated(
    record: Episode, execution: Execution, index: int, opened: Mapping[str, float]
) -> Episode:
    """Returns the record with correct positions of the doors and drawers that the plan has moved.

    A joint that is no longer open, or closed, is an effect that was lost, and is not changed.
    """
    facts, entities = execution.facts(), execution.plan.problem.entities
    for step in execution.plan.steps[:index]:
        for atom in step.adds:
            if atom[0].startswith(("opened", "closed")) and facts.atom(atom).holds:
                record = worlds.with_fact(record, atom, True, entities, opened)
    return record


def _replaced(execution: Execution, record: Episode) -> bool:
    """Puts the home into the start of a record; returns whether that was possible."""
    try:
        execution.replace_home(record)
    except Overlap:
        return False
    return True
