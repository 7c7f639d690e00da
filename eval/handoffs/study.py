"""Study of an episode: the episode itself, its steps in isolation, and repaired continuations.

Records consist of JSON types, so that they can be stored and a study can resume in another process.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.handoffs.errors import handoff_errors
from eval.handoffs.repairs import KINDS, Handoff, Kind, Repair, handoff_type, isolated_start
from eval.handoffs.worlds import open_before
from planner.execution.execution import EPISODE_STEPS, Execution
from planner.execution.executor import Executor
from planner.execution.marks import Mark
from planner.execution.trace import Stage, Trace
from planner.plan import Plan, PlanStep, skill_goal
from tpsrl.world.episode import Episode

OTHERS: Handoff = ("others", "others")

StudyRecord = Mapping[str, Any]  # result of `Study.run`


@dataclasses.dataclass(frozen=True, slots=True)
class Players:
    """Players of the analysis by kind: types of handoffs, of which the last may be all other types.

    A coalition is a number whose bit i is set if the handoffs of player i are repaired.
    """

    of: Mapping[str, tuple[Handoff, ...]]

    def members(self, kind: Kind, coalition: int) -> frozenset[Handoff]:
        """Returns the players of a coalition."""
        return frozenset(p for bit, p in enumerate(self.of[kind]) if coalition >> bit & 1)

    def types(self, kind: Kind, coalition: int, plan: Plan) -> frozenset[Handoff]:
        """Returns the types of handoffs in a plan that a coalition repairs."""
        members, named = self.members(kind, coalition), set(self.of[kind])
        every = {handoff_type(plan, index) for index in range(len(plan))}
        return frozenset(t for t in every if (t if t in named else OTHERS) in members)

    def player_of(self, kind: Kind, handoff: Handoff) -> int:
        """Returns the bit of the player that a type belongs to; 0 if it belongs to none."""
        found = handoff if handoff in self.of[kind] else OTHERS
        return 1 << self.of[kind].index(found) if found in self.of[kind] else 0


class _Recorder:
    """Intervention that takes a mark at every handoff, and measures the errors of the state."""

    def __init__(self, opened: Mapping[str, float]) -> None:
        self.opened = opened
        self.marks: list[Mark] = []
        self.errors: list[dict[str, float] | None] = []
        self.missed: set[Handoff] = set()

    def before(self, execution: Execution, step: PlanStep | None) -> None:
        """See `planner.execution.intervention.Intervention`."""
        self.marks.append(execution.mark())
        if step is None:
            return
        executor, plan = execution.executor, execution.plan
        found = None
        if step.index > 0:
            goal = skill_goal(step, plan.problem.entities, execution.world)
            wide = open_before(plan, step.index, self.opened)
            home = (executor.simulator, executor.env_id, execution.episode, execution.world)
            found = handoff_errors(*home, goal, wide)
        self.errors.append(found)

    def grant(self, execution: Execution, step: PlanStep, stage: Stage) -> bool:
        """Grants nothing."""
        return False


class Study:
    """Runs one episode, its steps in isolation, and its repaired continuations.

    Args:
        executor: with the rules of the evaluation, but without continuation after timeouts
        players: handoffs whose repairs are analysed separately
        opened: opening (rad, m) of doors and drawers once a plan has opened them, by marker
    """

    def __init__(self, executor: Executor, players: Players, opened: Mapping[str, float]) -> None:
        self.executor, self.players, self.opened = executor, players, opened
        self.steps = 0  # control steps of all runs

    def run(
        self, episode: Episode, coalitions: Mapping[str, Sequence[int]], isolated: bool = True
    ) -> dict[str, Any]:
        """Returns the record of an episode.

        Args:
            episode: to run
            coalitions: to run, by kind
            isolated: whether to run each step in isolation

        Returns:
            "id", "success", "steps" (of the episode itself), "stages", "repairs" (by kind and
            coalition: "success", and "applied", the number of handoffs at which something was
            replaced), "steps_run" and "repair_steps". Each step of the plan has in "stages":
            "skill", "name", "makes" (the predicate that it is for), "reached" (not if it could not
            start because an earlier step failed), "handed_over", "time" (the episode ran out of
            steps in it), "isolated" (None: not run, because no start state was found), "errors"
            and "mended" (for the step that failed first: whether it succeeds from a repaired
            state).
        """
        self.steps = 0
        recorder = _Recorder(self.opened)
        execution = self.executor.begin(episode, intervention=recorder)
        trace, plan = self._ran(execution, 0), execution.plan
        stages: list[dict[str, Any]] = []
        for step in plan:
            failed = not all(record["handed_over"] for record in stages)
            errors = recorder.errors[step.index : step.index + 1]
            stages.append(self._stage(trace, step, failed, errors))
        if isolated:
            for step, record in zip(plan, stages, strict=True):
                record["isolated"] = self._isolated(episode, plan, step)
        broken = next((s.index for s in plan if not stages[s.index]["handed_over"]), None)
        if broken is not None and 0 < broken < len(recorder.marks):
            stages[broken]["mended"] = self._mended(recorder.marks[broken], plan[broken])
        before = self.steps
        repairs = {
            kind: self._continued(kind, coalitions.get(kind, ()), trace, recorder.marks, plan)
            for kind in KINDS
        }
        return {
            "id": episode.id,
            "success": trace.success,
            "steps": trace.steps,
            "stages": stages,
            "repairs": repairs,
            "steps_run": self.steps,
            "repair_steps": self.steps - before,
        }

    def _ran(self, execution: Execution, before: int) -> Trace:
        """Runs an execution to its end; `before` is the number of steps already made."""
        trace = execution.run()
        self.steps += trace.steps - before
        return trace

    def _stage(
        self,
        trace: Trace,
        step: PlanStep,
        failed: bool,
        errors: Sequence[dict[str, float] | None],
    ) -> dict[str, Any]:
        """Returns the record of a step; `failed` is whether an earlier one did not hand over."""
        run = next((s for s in trace.stages if s.index == step.index), None)
        return {
            "name": step.name,
            "skill": step.skill,
            "makes": step.purpose[0],
            "reached": run is not None and (run.reached or not failed),
            "handed_over": run is not None and run.handed_over,
            "time": run is not None and run is trace.stages[-1] and _out_of_time(trace),
            "isolated": None,
            "errors": errors[0] if errors else None,
            "mended": None,
        }

    def _isolated(self, episode: Episode, plan: Plan, step: PlanStep) -> bool | None:
        """Returns whether a step's skill succeeds from one of its start states in this episode."""
        execution = self.executor.begin(episode, plan=plan)
        if not isolated_start(execution, step, self.opened):
            return None
        stage = execution.execute(step)
        self.steps += execution.trace.steps
        # If its preconditions do not hold, the skill was not run in isolation.
        return stage.handed_over if stage.reached else None

    def _mended(self, mark: Mark, step: PlanStep) -> bool:
        """Returns whether the step that failed first succeeds from a repaired state."""
        repair = Repair("state", frozenset([handoff_type(mark.plan, step.index - 1)]), self.opened)
        execution = mark.resumed(repair)
        before = execution.trace.steps
        stage = execution.execute(step)
        self.steps += execution.trace.steps - before
        return bool(repair.applied) and stage.handed_over

    def _continued(
        self, kind: Kind, coalitions: Iterable[int], trace: Trace, marks: Sequence[Mark], plan: Plan
    ) -> dict[str, Any]:
        """Returns the outcomes of an episode with the handoffs of coalitions repaired.

        Coalitions that agree on every player whose handoffs occurred have the same continuation,
        which is run once; that of the empty coalition is the episode itself.
        """
        chances = _chances(kind, trace, plan)
        met = self._bits(kind, [handoff for _, handoff in chances])
        known = [(met, 0, {"success": trace.success, "applied": 0})]
        outcomes = {}
        for coalition in sorted(coalitions):
            same = next((o for met, mine, o in known if coalition & met == mine), None)
            if same is None:
                types = self.players.types(kind, coalition, plan)
                # The run up to the first repaired handoff is the same, so it resumes there.
                first = min(index for index, handoff in chances if handoff in types)
                mark = next(mark for mark in marks if mark.at == first)
                repair = Repair(kind, types, self.opened)
                execution = mark.resumed(repair)
                done = self._ran(execution, execution.trace.steps)
                before = [handoff for index, handoff in chances if index < first]
                met = self._bits(kind, [*before, *repair.met])
                same = {"success": done.success, "applied": len(repair.applied)}
                known.append((met, coalition & met, same))
            outcomes[str(coalition)] = same
        return outcomes

    def _bits(self, kind: Kind, handoffs: Iterable[Handoff]) -> int:
        found = 0
        for handoff in handoffs:
            found |= self.players.player_of(kind, handoff)
        return found


def _chances(kind: Kind, trace: Trace, plan: Plan) -> list[tuple[int, Handoff]]:
    """Returns the handoffs of an episode that can be repaired, each with the step to resume from.

    A granted effect belongs to the end of a step, and therefore to the mark at the start of the
    step. A lost fact is granted before the step that needs it, or before the end. Some of these
    handoffs may need no repair; a successful episode has none, because no missing effect was
    needed.
    """
    last = max((stage.index for stage in trace.stages), default=-1)
    if kind == "state":
        good = [s.index for s in trace.stages if s.handed_over and s.index < last]
        return [(index + 1, handoff_type(plan, index)) for index in good]
    if trace.success:
        return []
    found = []
    for stage in trace.stages:
        if not stage.handed_over:
            if stage.index > 0:
                found.append((stage.index, handoff_type(plan, stage.index - 1)))
            found.append((stage.index, handoff_type(plan, stage.index)))
    if trace.ended_by == "stop" and last >= 0:
        found.append((last + 1, handoff_type(plan, last)))
    return found


def _out_of_time(trace: Trace) -> bool:
    return trace.ended_by == EPISODE_STEPS
