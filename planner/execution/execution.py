"""Execution of one episode: carries out a plan step by step."""

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from planner.execution.blame import Blame
from planner.execution.disturbance import Disturbance
from planner.execution.episode_home import EpisodeHome
from planner.execution.facts import Facts
from planner.execution.intervention import Intervention, NoIntervention
from planner.execution.limits import episode_forces
from planner.execution.marks import Mark
from planner.execution.progress import RESET_ARM, SKILL, WAIT, OnStep, StepInfo
from planner.execution.skill_run import SkillRun
from planner.execution.timeouts import ran_out
from planner.execution.trace import TIMEOUT, HandoffState, Stage, StageMark, Trace
from planner.execution.upkeep import Upkeep
from planner.given import searched_or_read
from planner.plan import Plan, PlanStep, clause_text, skill_goal
from planner.predicates import Atom, Resolved, text
from planner.problem import problem_from_episode
from planner.rewriting import rewritten
from planner.search import UnsolvableError
from planner.stages import stage_goals
from skills.core.conditions import Margin
from skills.core.geometry import planar_distance
from skills.core.interface import SkillGoal, SkillPolicy
from tpsrl.errors import UserError
from tpsrl.world import action as action_layout
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

if TYPE_CHECKING:
    from planner.execution.executor import Executor

FORCE_LIMIT, EPISODE_STEPS = "force_limit", "episode_steps"


class Execution:
    """One episode in progress.

    `at` is the index of the next step in the plan. An `intervention` is called at every handoff,
    and may change the home there.
    """

    def __init__(
        self,
        executor: "Executor",
        episode: Episode,
        on_step: OnStep | None,
        intervention: Intervention | None = None,
        plan: Plan | None = None,
        to_the_end: bool = False,
    ) -> None:
        self.executor = executor
        self.limits, self.rules = executor.limits, executor.rules
        self.episode, self.on_step, self._to_the_end = episode, on_step, to_the_end
        self.intervention: Intervention = intervention or NoIntervention()
        self.at = 0
        self.home = EpisodeHome(executor.simulator, executor.env_id)
        self.skill_run: SkillRun | None = None  # the last one started
        self.resolved: dict[Atom, Resolved] = {}
        self.plan = self._new_plan(executor.rules.plan_file) if plan is None else plan
        self.first_plan = self.plan
        for step in self.plan:
            executor.policy(step.skill)
        self.trace = Trace(episode, self.plan.stages, [step.skill for step in self.plan])
        self.trace.purposes = [step.purpose[0] for step in self.plan]
        self.trace.turns = list(self.plan.turns)
        self.blame = Blame(self.trace)
        self.upkeep = Upkeep(self.plan)
        self.disturbance = Disturbance(self.plan.problem.entities, self.world)
        self.stage_goals = stage_goals(self.plan.found)
        self.trace.stage_goals = {name: StageMark() for name in self.stage_goals}
        self._mark_stage_goals(self.facts())
        self.over = ""
        self.ending: Trace | None = None  # trace that ended at the first timeout

    @property
    def world(self) -> WorldState:
        """State of the home (batch one) after the last control step."""
        return self.home.world

    def run(self) -> Trace:
        """Executes the plan until it or the episode ends, and judges the goal.

        The protocol's treatment of timeouts decides which of the two traces is returned; the other
        one, if it was run, is in `Trace.other`.
        """
        self._carry_out()
        ending, ended = self.ending, self.limits.end_on_timeout
        if ending is not None and self.over == TIMEOUT:
            return ending
        self._finish()
        self._judge(self.trace)
        if ending is None:
            return self.trace
        verdict, other = (ending, self.trace) if ended else (self.trace, ending)
        verdict.other = other
        return verdict

    # -- methods for interventions -------------------------------------------------------------

    def mark(self) -> "Mark":
        """Returns a mark from which the episode can be resumed; to be called at a handoff.

        Raises:
            UserError: the engine cannot take exact snapshots.
        """
        if not self.executor.simulator.capabilities.exact_snapshots:
            raise UserError("snapshots: this engine cannot take exact snapshots")
        return Mark(self.copy(), self.home.snapshot())

    def copy(self, intervention: Intervention | None = None) -> "Execution":
        """Returns a copy that continues independently once the home is restored to this state."""
        other = copy.copy(self)
        other.home, other.trace = self.home.copy(), self.trace.fork()
        other.blame = Blame(other.trace)
        other.ending = None if self.ending is None else self.ending.fork()
        other.disturbance, other.upkeep = self.disturbance.copy(), self.upkeep.copy()
        other.intervention = intervention or NoIntervention()
        return other

    def replace_home(self, episode: Episode) -> None:
        """Resets the home to the start of an episode with the same objects; keeps steps and forces.

        Raises:
            Overlap: the robot or an object would be inside something; the home is unchanged.
        """
        self.home.replace(episode)

    def forget_end(self, force_total_n: float) -> None:
        """Revokes the limit that has just ended the episode, and sets the summed force (N)."""
        self.over = ""
        self.home.set_force_total(force_total_n)

    # -- the plan ------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        while not self.over:
            if self.at == len(self.plan):
                if not self._should_restart():
                    break
                self.at = 0
                continue
            stage = self.execute(self.plan[self.at])
            failed = not stage.succeeded
            if failed and self.rules.replan and not self.over and self._replanned():
                self.at = 0
                continue
            self.at += 1

    def _new_plan(self, first: Path | None = None) -> Plan:
        """Returns a plan from the current state to the goal, from the file `first` or by search."""
        thresholds, rules = self.executor.predicates, self.rules
        problem = problem_from_episode(self.episode, self.world, thresholds, rules.plan)
        found = searched_or_read(problem, rules.domain, rules.carried_out_by, first)
        return rewritten(found, rules.without, rules.one_skill)

    def _replanned(self) -> bool:
        """Makes a new plan; returns False, and keeps the old plan, if there is none."""
        if self.trace.plans > self.rules.max_replans:
            return False
        try:
            self.plan = self._new_plan()
        except UnsolvableError:
            self.blame.no_plan()
            return False
        self.upkeep = Upkeep(self.plan)
        self.trace.plans += 1
        return True

    def _should_restart(self) -> bool:
        """Returns whether the goal was lost by the end of the plan and a new plan restores it."""
        goals = self.facts().goals().values()
        if not self.rules.replan or all(margin.holds for margin in goals):
            return False
        return self._replanned() and len(self.plan) > 0

    # -- one step of the plan ------------------------------------------------------------------

    def execute(self, step: PlanStep) -> Stage:
        """Executes one step of the plan: the skill, and the arm's reset if another step follows."""
        self.intervention.before(self, step)
        facts, entities = self.facts(), self.plan.problem.entities
        self.upkeep.begin(step.index, facts)
        turn = self.plan.turns[step.index]
        stage = Stage(
            index=self._stage_index(step),
            plan=self.trace.plans - 1,
            name=step.name,
            skill=step.skill,
            action=(step.action, *step.args),
            before=self._handoff(),
            preconditions={clause_text(c): facts.clause(c) for c in step.preconditions},
            goal=dataclasses.replace(skill_goal(step, entities, self.world), grasp=self.home.grasp),
            target=entities[turn].object if turn else -1,
        )
        if self.rules.snapshots:
            key = len(self.trace.stages)
            self.trace.snapshots[key] = self.home.snapshot()
        self.trace.stages.append(stage)
        if self.blame.unmet(stage):
            stage.ended_by = "precondition"
            self._part_at_timeout(step, stage, facts)
        else:
            self._run_skill(step, stage)
            if not self._granted(step, stage):
                self._check_effects(step, stage)
                self.upkeep.made(step.index, self.facts())
                if not self.over and self._resets_arm_after(step):
                    self._reset_arm(step, stage)
        stage.after = self._handoff()
        stage.handed_over = stage.reached and self._still_handed_over(step, stage)
        if not stage.handed_over and not stage.granted and stage.reached:
            self._granted(step, stage)
        self._note_losses(self.blame, stage)
        return stage

    def _note_losses(self, blame: Blame, stage: Stage) -> None:
        blame.losses(stage, self.upkeep.lost(self.facts()))
        blame.knocks(stage, self.disturbance.knocked(self.world, stage.before.step))

    def _still_handed_over(self, step: PlanStep, stage: Stage) -> bool:
        """Returns whether the step's effects hold at the handoff and the episode continues."""
        return not self.over and all(m.holds for m in self.facts().atoms(step.adds).values())

    def _granted(self, step: PlanStep, stage: Stage) -> bool:
        """Returns whether the intervention grants the effects that a step has not brought about."""
        ended = self.limits.end_on_timeout and ran_out(step, stage, self.rules.replan)
        lacking = not all(m.holds for m in self.facts().atoms(step.adds).values())
        if self.over == EPISODE_STEPS or not (self.over or ended or lacking):
            return False
        stage.granted = self.intervention.grant(self, step, stage)
        if stage.granted:
            stage.effects = self.facts().atoms(step.adds)
            stage.after, stage.handed_over = self._handoff(), True
        return stage.granted

    def _run_skill(self, step: PlanStep, stage: Stage) -> None:
        self.home.begin_skill()
        run = SkillRun.begin(self.executor, step, stage.goal, self.episode, self.world)
        self.skill_run, limits = run, run.limits
        force_before = float(self.world.force_total[0])
        while not stage.ended_by and stage.steps < limits.steps:
            action, stop = self.home.act(run.policy, run.mask, run.skill.grip)
            if stop and run.too_far_to_stop(self.world, self.rules.nav_stop_within_m):
                action[action_layout.STOP], stop = -1.0, False
            base = np.array(self.world.base)
            self._step(action)
            stage.steps += 1
            stage.travelled_m += float(planar_distance(base, self.world.base)[0])
            stage.in_hand = stage.in_hand or 0 <= stage.target == self.world.held[0]
            stage.force_peak_n = max(stage.force_peak_n, float(self.world.force[0]))
            stage.force_sum_n = float(self.world.force_total[0]) - force_before
            verdict = run.judge(stage, self.world, stop)
            stage.ended_by = self.over or verdict
            self._tell(step, SKILL, stage.steps, limits.steps, stage.results)
        stage.ended_by = stage.ended_by or TIMEOUT
        stage.diagnosis = dict(run.policy.diagnosis())

    def _check_effects(self, step: PlanStep, stage: Stage) -> None:
        facts = self.facts()
        stage.effects = facts.atoms(step.adds)
        if self.over:
            self._blame_end(step, stage)
        else:
            self._part_at_timeout(step, stage, facts)
            self.blame.skill_ended(step, stage, facts)

    def _part_at_timeout(self, step: PlanStep, stage: Stage, facts: Facts) -> None:
        """Splits the trace at the first timeout of a skill.

        One trace ends here and is judged. `self.trace` continues as the other one.
        """
        if self.ending is not None or not ran_out(step, stage, self.rules.replan):
            return
        self.ending = ending = self.trace.fork()
        blame, last = Blame(ending), ending.stages[-1]
        if last.reached:
            blame.episode_ended(step, last, facts, last.ended_by, None)
        ending.timeout = self.trace.timeout = ending.causes[-1]
        ending.ended_by, last.after = TIMEOUT, self._handoff()
        self._note_losses(blame, last)
        self._judge(ending)
        if self.limits.end_on_timeout and not self.rules.after_timeout:
            self.over = TIMEOUT

    def _resets_arm_after(self, step: PlanStep) -> bool:
        """Returns whether to reset the arm: between two steps, or if another plan may follow."""
        between = step.index < len(self.plan) - 1 or self.rules.replan
        return self.rules.add_arm_rest and between

    def _reset_arm(self, step: PlanStep, stage: Stage) -> None:
        """Brings the arm back to rest. The hand keeps an object, and releases a handle.

        A policy that stops at once, because the arm is already at rest, costs no step, unless a
        handle has to be released.
        """
        policy = self._resetting(step)
        mask = np.zeros(action_layout.SIZE, dtype=bool)
        mask[action_layout.ARM] = True
        held, limit = int(self.world.held[0]), self.limits.reset_arm_steps
        policy.begin(self.episode, SkillGoal(), self.world)
        stop = False
        while not stop and not self.over and stage.reset_steps < limit:
            action, stop = self.home.act(policy, mask)
            if stop and stage.reset_steps == 0 and self.world.held_joint[0] < 0:
                return
            self._step(action)
            stage.reset_steps += 1
            stage.force_peak_n = max(stage.force_peak_n, float(self.world.force[0]))
            self._tell(step, RESET_ARM, stage.reset_steps, limit)
        if self.over:
            self._blame_end(step, stage)
        elif held >= 0 and self.world.held[0] != held:
            self.blame.dropped(step, stage, self.facts())

    def _resetting(self, step: PlanStep) -> SkillPolicy:
        """Returns the policy that resets the arm after a step, which depends on the next skill."""
        default, last = self.executor.reset_arm, len(self.plan) - 1
        assert default is not None
        if step.index == last:
            return default
        return self.executor.reset_before.get(self.plan[step.index + 1].skill, default)

    def _blame_end(self, step: PlanStep, stage: Stage) -> None:
        force = self._worst_force() if self.over == FORCE_LIMIT else None
        self.blame.episode_ended(step, stage, self.facts(), self.over, force)

    # -- control steps -------------------------------------------------------------------------

    def _step(self, action: np.ndarray) -> None:
        """Runs one control step; sets `over` when a limit of the episode is reached."""
        self.home.step(action)
        self.trace.steps += 1
        self.trace.force_peak_n = max(self.trace.force_peak_n, float(self.world.force[0]))
        facts = self.facts()
        self.disturbance.note(self.world, self.trace.steps)
        self.upkeep.note(facts, self.trace.steps)
        self._mark_stage_goals(facts)
        if not all(margin.holds for margin in episode_forces(self.limits, self.world).values()):
            self.over = FORCE_LIMIT
        elif self.trace.steps >= self.limits.episode_steps:
            self.over = EPISODE_STEPS

    def _mark_stage_goals(self, facts: Facts) -> None:
        """Notes when each stage goal first held, and first held in order."""
        turn = True
        for name, atoms in self.stage_goals.items():
            mark = self.trace.stage_goals[name]
            wanted = mark.first is None or (turn and mark.in_turn is None)
            if wanted and facts.all_hold(atoms):
                if mark.first is None:
                    mark.first = self.trace.steps
                if turn:
                    mark.in_turn = self.trace.steps
            turn = mark.in_turn is not None

    def _finish(self) -> None:
        """Waits for objects to settle within the episode's limit, and calls stop."""
        if self.over:
            self.trace.ended_by = self.over
            return
        self.intervention.before(self, None)
        self.upkeep.begin(len(self.plan), self.facts())
        room = self.limits.episode_steps - self.trace.steps - 1
        wait = min(self.limits.wait_end_steps, room)
        last = self.plan[-1] if len(self.plan) else None
        for number in range(wait + 1):
            action = np.zeros(action_layout.SIZE)
            action[action_layout.GRIP] = 1.0 if self.world.held[0] >= 0 else -1.0
            action[action_layout.STOP] = 1.0 if number == wait else -1.0
            self._step(action)
            if last is not None:
                self._tell(last, WAIT, number + 1, wait + 1)
            if self.over == FORCE_LIMIT:
                self.trace.ended_by = self.over
                self.blame.note(None, "force", self._worst_force(), self.over)
                return
        self.trace.ended_by = "stop"

    def _judge(self, trace: Trace) -> None:
        """Judges full-task success: stop was called and every atom of the goal holds."""
        stopped = {"stop", TIMEOUT} if self.limits.timeout_calls_stop else {"stop"}
        trace.goal = self.facts().goals()
        trace.force_total_n = float(self.world.force_total[0])
        trace.success = trace.ended_by in stopped and all(m.holds for m in trace.goal.values())
        trace.moved = self.disturbance.moved(self.world)
        if self.rules.snapshots:
            trace.snapshots[len(trace.stages)] = self.home.snapshot()
        entities = self.plan.problem.entities
        positions = {e.name: entities.position(e, self.world) for e in entities}
        lost = {fact.predicate: fact.step for fact in self.upkeep.lost(self.facts())}
        Blame(trace).judged(positions, lost)

    # -- current facts -------------------------------------------------------------------------

    def facts(self) -> Facts:
        """Returns the facts of the current world state."""
        return Facts(self.world, self.plan, self.executor.predicates, self.resolved)

    def _worst_force(self) -> Margin:
        return min(
            episode_forces(self.limits, self.world).values(), key=lambda margin: margin.margin
        )

    def _stage_index(self, step: PlanStep) -> int:
        if self.plan is self.first_plan:  # an action may occur twice in it
            return step.index
        same = [s.index for s in self.first_plan if (s.action, s.args) == (step.action, step.args)]
        return same[0] if same else -1

    def _handoff(self) -> HandoffState:
        goals = self.facts().goals()
        return HandoffState.of(self.world, len(self.episode.objects), self.trace.steps, goals)

    def _tell(
        self,
        step: PlanStep,
        phase: str,
        phase_step: int,
        phase_limit: int,
        conditions: Mapping[str, Margin] = MappingProxyType({}),
    ) -> None:
        judged = self.ending is not None and self.limits.end_on_timeout
        if self.on_step is None or (judged and not self._to_the_end):
            return
        info = StepInfo(
            index=step.index,
            total=len(self.plan),
            name=step.name,
            action=step.text,
            skill=step.skill,
            phase=phase,
            phase_step=phase_step,
            phase_limit=phase_limit,
            episode_step=self.trace.steps,
            predicate=text(step.purpose),
            margin=self.facts().atom(step.purpose),
            object=self.plan.problem.entities[step.args[0]].object,
            conditions=conditions,
        )
        self.on_step(self.world, info)
