"""What went wrong in an episode, and where: causes, noted as they come about."""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.execution.disturbance import MOVED_M, Knock
from planner.execution.facts import Facts
from planner.execution.trace import Cause, Stage, Trace, earliest
from planner.execution.upkeep import Lost
from planner.plan import PlanStep
from planner.predicates import text
from skills.core.conditions import Margin

LOST, KNOCKED = "lost", "knocked"  # reasons: what once held, and what stood where it was
BESIDE_M = 0.3  # as near as this a displaced object can be in the way

_ENDS = ("force_limit", "episode_steps", "no_plan")  # reasons that nothing can make good


class Blame:
    """Writes causes into a trace; forces are judged by the caller, who knows the limits."""

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
        """A cause: what did not hold in a stage (None: in none), by how much, and why.

        `step` is the control step at which it ceased to hold, None: the last one.
        """
        index, name, skill = (stage.index, stage.name, stage.skill) if stage else (-1, "", "")
        where = (index, name, skill, predicate)
        what = (margin.margin, margin.unit, reason, self._trace.steps if step is None else step)
        self._trace.causes.append(Cause(*where, *what))

    def no_plan(self) -> None:
        """After a failure no plan reaches the goal any more."""
        self.note(None, "plan", Margin.flag(False), "no_plan")

    def unmet(self, stage: Stage) -> bool:
        """A precondition of a stage does not hold; whether that is so."""
        missing = _missing(stage.preconditions)
        if missing is not None:
            self.note(stage, *missing, "precondition")
        return missing is not None

    def skill_ended(self, step: PlanStep, stage: Stage, facts: Facts) -> None:
        """A skill has ended, and the episode has not: what it was to bring about is lacking."""
        missing = _missing(stage.effects)
        if stage.ended_by == "dropped":
            self.dropped(step, stage, facts)
        elif missing is not None:
            self.note(stage, *missing, stage.ended_by)

    def episode_ended(
        self, step: PlanStep, stage: Stage, facts: Facts, over: str, force: Margin | None
    ) -> None:
        """The episode ended within a stage: by `force`, or by what effects and skill lacked."""
        if force is not None:
            self.note(stage, "force", force, over)
            return
        parts = {f"{step.skill}.{n}": m for n, m in stage.results.items() if n != "success"}
        purpose = (text(step.purpose), facts.atom(step.purpose))
        self.note(stage, *(_missing({**stage.effects, **parts}) or purpose), over)

    def dropped(self, step: PlanStep, stage: Stage, facts: Facts) -> None:
        """The object in the hand fell: the one held at the start, else the one that was picked."""
        entities = facts.entities
        held = stage.before.held
        name = entities.objects[held].name if held >= 0 else step.args[0]
        atom = ("holding", name, entities.robot.name)
        self.note(stage, text(atom), facts.atom(atom), "dropped")

    def losses(self, stage: Stage, lost: Sequence[Lost]) -> None:
        """Facts that held before a stage, and that the plan still needs, no longer hold."""
        known = {cause.predicate for cause in self._trace.causes if cause.stage == stage.index}
        for fact in lost:
            if fact.predicate not in known:
                self.note(stage, fact.predicate, fact.margin, LOST, fact.step)

    def knocks(self, stage: Stage, knocked: Sequence[Knock]) -> None:
        """Objects that were pushed about during a stage, and are not what it is about."""
        for knock in knocked:
            if knock.object != stage.goal.object:
                margin = Margin.below(knock.metres, MOVED_M, "m")
                self.note(stage, f"undisturbed({knock.name})", margin, KNOCKED, knock.step)

    def judged(self, positions: Mapping[str, np.ndarray], lost: Mapping[str, int]) -> None:
        """The episode is over and judged: marks what was made good, and names what was lost.

        `positions` (3,) are those of the plan's entities, by name; `lost` says at which control
        step a fact of the goal was, where that is known.
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
        """A cause is made good when its goal holds at the end, or its stage succeeded later."""
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
                asked = [
                    m
                    for s, m in zip(self._trace.stages, needed, strict=True)
                    if m is not None and s.before.step >= cause.step
                ]
                cause.recovered = bool(asked) and asked[-1].holds

    def _mark_harmless(self, positions: Mapping[str, np.ndarray]) -> None:
        """An object that was pushed about matters where the failure is about it, or beside it."""
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
        """Whether a failed stage is about an object, or about something next to it."""
        stages = [s for s in self._trace.stages if s.index == failure.stage]
        about = stages[-1].action[1:] if stages else ()
        if knocked in about:
            return True
        near = [positions[name] for name in about if name in positions]
        return any(np.linalg.norm(p - positions[knocked]) < BESIDE_M for p in near)


def _missing(facts: dict[str, Margin]) -> tuple[str, Margin] | None:
    """The first that does not hold."""
    return next(((name, margin) for name, margin in facts.items() if not margin.holds), None)
