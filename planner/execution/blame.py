"""What went wrong in an episode, and where: causes, noted as they come about."""

from planner.execution.facts import Facts
from planner.execution.trace import Cause, Stage, Trace
from planner.plan import PlanStep
from planner.predicates import text
from skills.core.conditions import Margin

_ENDS = ("force_limit", "episode_steps", "no_plan")  # reasons that nothing can make good


class Blame:
    """Writes causes into a trace; forces are judged by the caller, who knows the limits."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def note(self, stage: Stage | None, predicate: str, margin: Margin, reason: str) -> None:
        """A cause: what did not hold in a stage (None: in none), by how much, and why."""
        index, name, skill = (stage.index, stage.name, stage.skill) if stage else (-1, "", "")
        where = (index, name, skill, predicate)
        what = (margin.margin, margin.unit, reason, self._trace.steps)
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

    def losses(self, step: PlanStep, stage: Stage) -> None:
        """Goals that held before a stage and no longer do, though the plan did not ask for it."""
        assert stage.after is not None
        ended = {text(atom) for atom in step.deletes}
        for name, margin in stage.after.goals.items():
            lost = stage.before.goals[name].holds and not margin.holds
            if lost and name.startswith("object_at") and name not in ended:
                self.note(stage, name, margin, "lost")

    def judged(self) -> None:
        """The episode is over and judged: marks what was made good, and names what was lost."""
        self._mark_recovered()
        trace = self._trace
        missing = _missing(trace.goal)
        if not trace.success and missing is not None and trace.first_cause is None:
            makers = [stage for stage in trace.stages if missing[0] in stage.effects]
            self.note(makers[-1] if makers else None, *missing, "lost")

    def _mark_recovered(self) -> None:
        """A cause is made good when its goal holds at the end, or its stage succeeded later."""
        last = {stage.index: stage for stage in self._trace.stages if stage.reached}
        for cause in self._trace.causes:
            if cause.reason in _ENDS:
                continue
            goal = self._trace.goal.get(cause.predicate)
            if goal is not None:
                cause.recovered = goal.holds
            elif cause.stage in last and last[cause.stage].before.step >= cause.step:
                cause.recovered = last[cause.stage].succeeded


def _missing(facts: dict[str, Margin]) -> tuple[str, Margin] | None:
    """The first that does not hold."""
    return next(((name, margin) for name, margin in facts.items() if not margin.holds), None)
