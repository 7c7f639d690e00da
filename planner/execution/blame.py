"""Causes of failures in an episode, noted as they occur."""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.execution.disturbance import MOVED_M, Knock
from planner.execution.facts import Facts
from planner.execution.trace import Cause, Stage, Trace, earliest
from planner.execution.upkeep import Lost
from planner.plan import PlanStep
from planner.predicates import text
from skills.core.conditions import Margin

LOST, KNOCKED = "lost", "knocked"  # reasons: a fact ceased to hold, an object was displaced
BESIDE_M = 0.3  # distance within which a displaced object can be an obstacle

_ENDS = ("force_limit", "episode_steps", "no_plan")  # reasons without recovery


class Blame:
    """Writes causes into a trace; the caller, who has the limits, judges forces."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def note(
        self,
        stage: Stage | None,
        predicate: str,
        margin: Margin,
        reason: str,
        step: int | None = None,
    ) -> None:
        """Notes a cause: the predicate that did not hold, its margin, and the reason.

        `stage` is None for a cause outside of any stage. `step` is the control step at which the
        predicate ceased to hold; None: the last one.
        """
        index, name, skill = (stage.index, stage.name, stage.skill) if stage else (-1, "", "")
        where = (index, name, skill, predicate)
        what = (margin.margin, margin.unit, reason, self._trace.steps if step is None else step)
        self._trace.causes.append(Cause(*where, *what))

    def no_plan(self) -> None:
        """Notes that no plan reaches the goal after a failure."""
        self.note(None, "plan", Margin.flag(False), "no_plan")

    def unmet(self, stage: Stage) -> bool:
        """Notes a precondition of a stage that does not hold; returns whether there is one."""
        missing = _missing(stage.preconditions)
        if missing is not None:
            self.note(stage, *missing, "precondition")
        return missing is not None

    def skill_ended(self, step: PlanStep, stage: Stage, facts: Facts) -> None:
        """Notes the effect that is missing after a skill has ended within the episode."""
        missing = _missing(stage.effects)
        if stage.ended_by == "dropped":
            self.dropped(step, stage, facts)
        elif missing is not None:
            self.note(stage, *missing, stage.ended_by)

    def episode_ended(
        self, step: PlanStep, stage: Stage, facts: Facts, over: str, force: Margin | None
    ) -> None:
        """Notes why the episode ended within a stage: `force`, or a missing effect or condition."""
        if force is not None:
            self.note(stage, "force", force, over)
            return
        parts = {f"{step.skill}.{n}": m for n, m in stage.results.items() if n != "success"}
        purpose = (text(step.purpose), facts.atom(step.purpose))
        self.note(stage, *(_missing({**stage.effects, **parts}) or purpose), over)

    def dropped(self, step: PlanStep, stage: Stage, facts: Facts) -> None:
        """Notes a dropped object: the one held at the start of the stage, or the one it picked."""
        entities = facts.entities
        held = stage.before.held
        name = entities.objects[held].name if held >= 0 else step.args[0]
        atom = ("holding", name, entities.robot.name)
        self.note(stage, text(atom), facts.atom(atom), "dropped")

    def losses(self, stage: Stage, lost: Sequence[Lost]) -> None:
        """Notes facts that held before a stage, are still needed, and no longer hold."""
        known = {cause.predicate for cause in self._trace.causes if cause.stage == stage.index}
        for fact in lost:
            if fact.predicate not in known:
                self.note(stage, fact.predicate, fact.margin, LOST, fact.step)

    def knocks(self, stage: Stage, knocked: Sequence[Knock]) -> None:
        """Notes objects that were displaced during a stage, except the stage's own object."""
        for knock in knocked:
            if knock.object != stage.goal.object:
                margin = Margin.below(knock.metres, MOVED_M, "m")
                self.note(stage, f"undisturbed({knock.name})", margin, KNOCKED, knock.step)

    def judged(self, positions: Mapping[str, np.ndarray], lost: Mapping[str, int]) -> None:
        """Marks recovered causes at the end of the episode, and notes a lost fact of the goal.

        `positions` (3,) are those of the plan's entities, by name; `lost` maps facts of the goal to
        the control step at which they were lost, where known.
        """
        self._mark_recovered()
        self._mark_harmless(positions)
        trace = self._trace
        missing = _missing(trace.goal)
        if not trace.success and missing is not None and trace.first_cause is None:
            makers = [stage for stage in trace.stages if missing[0] in stage.effects]
            maker, step = makers[-1] if makers else None, lost.get(missing[0])
            self.note(maker, *missing, LOST, step)

    def _mark_recovered(self) -> None:
        """Marks a cause as recovered if its goal holds at the end, or its stage succeeded later."""
        last = {stage.index: stage for stage in self._trace.stages if stage.reached}
        for cause in self._trace.causes:
            if cause.reason in (*_ENDS, KNOCKED):
                continue
            goal = self._trace.goal.get(cause.predicate)
            if goal is not None:
                cause.recovered = goal.holds
            elif cause.stage in last and last[cause.stage].before.step >= cause.step:
                cause.recovered = last[cause.stage].succeeded
            elif cause.reason == LOST:
                needed = [s.preconditions.get(cause.predicate) for s in self._trace.stages]
                later = [
                    m
                    for s, m in zip(self._trace.stages, needed, strict=True)
                    if m is not None and s.before.step >= cause.step
                ]
                cause.recovered = bool(later) and later[-1].holds

    def _mark_harmless(self, positions: Mapping[str, np.ndarray]) -> None:
        """Marks displaced objects as recovered unless the failure is about or beside them."""
        causes = self._trace.causes
        failure = earliest(c for c in causes if not c.recovered and c.reason != KNOCKED)
        for cause in causes:
            if cause.reason != KNOCKED:
                continue
            cause.recovered = failure is None or cause.step > failure.step
            if not cause.recovered and failure is not None:
                knocked = cause.predicate.removeprefix("undisturbed(").removesuffix(")")
                cause.recovered = not self._concerns(failure, knocked, positions)

    def _concerns(self, failure: Cause, knocked: str, positions: Mapping[str, np.ndarray]) -> bool:
        """Returns whether a failed stage is about an object, or one within `BESIDE_M` of it."""
        stages = [s for s in self._trace.stages if s.index == failure.stage]
        about = stages[-1].action[1:] if stages else ()
        if knocked in about:
            return True
        near = [positions[name] for name in about if name in positions]
        return any(np.linalg.norm(p - positions[knocked]) < BESIDE_M for p in near)


def _missing(facts: dict[str, Margin]) -> tuple[str, Margin] | None:
    """Returns the first fact that does not hold."""
    return next(((name, margin) for name, margin in facts.items() if not margin.holds), None)
