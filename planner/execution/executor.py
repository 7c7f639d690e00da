"""Carries a plan out in one home, one skill per step, and records every handoff.

Two modes, both used in the field. The fixed plan is HAB's way: a failed step is followed by the
next one. A step whose preconditions do not hold is not run (habitat-baselines would run it and
let it time out, with the same outcome but for the steps it costs). With `replan`, a failed step is
followed by a new plan from the observed state.

After every skill the arm is brought back to rest, as HAB's fixed policy does; after the last one
the robot waits, calls stop, and the goal is judged.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from planner.conditions import Clause
from planner.execution.trace import Cause, Observation, Stage, StageMark, Trace
from planner.options import PlanOptions
from planner.plan import Plan, Step, clause_text, skill_goal
from planner.predicates import Atom, PredicateContext, PredicateThresholds, evaluate, text
from planner.problem import problem_from_episode
from planner.search import UnsolvableError, plan
from planner.stages import stage_goals
from skills.core.geometry import planar_distance
from skills.core.interface import Margin, Skill, SkillGoal, SkillPolicy, SkillThresholds
from skills.core.task import masked
from skills.registry import get as get_skill
from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Simulator
from tpsrl.world import action as action_layout
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

RESET_ARM = "reset_arm"


@dataclasses.dataclass(frozen=True, slots=True)
class SkillLimits:
    """Steps of 1/30 s, and newtons, of one execution of a skill; None: no limit of its own.

    Beyond a limit on force the skill has failed, and the plan goes on.
    """

    steps: int = config.option(200, "the most of one execution", minimum=1)
    force_instant_n: float | None = None
    force_total_n: float | None = None

    def exceeded(self, force_n: float, force_sum_n: float) -> bool:
        """Whether the force of a control step, or the sum over the skill's steps, is too much."""
        instant, total = self.force_instant_n, self.force_total_n
        return (instant is not None and force_n > instant) or (
            total is not None and force_sum_n > total
        )


@dataclasses.dataclass(frozen=True, slots=True)
class LimitsBySkill:
    """The limits of each skill; the defaults are habitat-lab's in the full task (0.3.3)."""

    navigate: SkillLimits = SkillLimits(300)
    pick: SkillLimits = SkillLimits()
    place: SkillLimits = SkillLimits()
    open_fridge: SkillLimits = SkillLimits()
    close_fridge: SkillLimits = SkillLimits()
    open_drawer: SkillLimits = SkillLimits()
    close_drawer: SkillLimits = SkillLimits()

    def of(self, skill: str) -> SkillLimits:
        """The limits of one execution of a skill.

        Raises:
            UserError: there is no such skill.
        """
        if skill not in {field.name for field in dataclasses.fields(self)}:
            raise unknown("skill", skill, (field.name for field in dataclasses.fields(self)))
        limits: SkillLimits = getattr(self, skill)
        return limits


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutionLimits(LimitsBySkill):
    """The limits of each skill and of the whole episode, in steps of 1/30 s and newtons.

    The defaults are habitat-lab's full task (0.3.3); a limit of None is none. `end_on_timeout` ends
    the episode when a skill runs out of steps. habitat-baselines does so (`force_end_on_timeout`)
    unless told otherwise; here the plan goes on, so that later stages are seen too.
    """

    reset_arm_steps: int = 50
    episode_steps: int = config.option(3000, "the most of an episode", minimum=1)
    wait_end_steps: int = 30
    force_instant_n: float | None = 10_000.0
    force_total_n: float | None = 100_000.0
    end_on_timeout: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutionRules:
    """How a plan is carried out.

    `replan` asks for a new plan after a failure, at most `max_replans` times. `add_arm_rest` runs
    the policy "reset_arm" after each skill, as HAB's fixed plan does.
    `nav_stop_within_m` ignores Navigate's stop farther away from its goal (VER deploys with 2 m).
    `snapshots` keeps the home's state at every handoff. `plan` is how the scenario is planned.
    """

    replan: bool = False
    max_replans: int = 20
    add_arm_rest: bool = True
    nav_stop_within_m: float = math.inf
    snapshots: bool = False
    plan: PlanOptions = dataclasses.field(default_factory=PlanOptions)


@dataclasses.dataclass(frozen=True, slots=True)
class StepInfo:
    """What goes on in one control step, for captions.

    `index` of `total` is the step of the current plan (from 0), `phase` "skill", "reset_arm" or
    "wait", `margin` that of `predicate`, the atom that the plan's step is for, `object` the index
    into `Episode.objects` of what the step is about, -1 for none.
    """

    index: int
    total: int
    name: str
    action: str
    skill: str
    phase: str
    phase_step: int
    phase_limit: int
    episode_step: int
    predicate: str
    margin: Margin
    object: int = -1


OnStep = Callable[[WorldState, StepInfo], None]


class Executor:
    """Runs episodes in one home of a simulator.

    `policies` acts for skills by name ("navigate", "pick", "place", ..., "reset_arm").

    Raises:
        UserError: a policy is missing, or snapshots are asked of an engine without them.
    """

    def __init__(
        self,
        simulator: Simulator,
        policies: Mapping[str, SkillPolicy],
        *,
        env_id: int = 0,
        limits: ExecutionLimits | None = None,
        rules: ExecutionRules | None = None,
        thresholds: SkillThresholds | None = None,
        predicates: PredicateThresholds | None = None,
        skills: Callable[[str], Skill] = get_skill,
    ) -> None:
        self.simulator = simulator
        self.policies = policies
        self.env_id = env_id
        self.limits = limits or ExecutionLimits()
        self.rules = rules or ExecutionRules()
        self.thresholds = thresholds or SkillThresholds()
        self.predicates = predicates or PredicateThresholds()
        self.skills = skills
        if self.rules.snapshots and not simulator.capabilities.exact_snapshots:
            raise UserError("snapshots: this engine cannot take exact snapshots")
        if self.rules.add_arm_rest:
            self.policy(RESET_ARM)

    def policy(self, name: str) -> SkillPolicy:
        """The policy that acts for a skill."""
        if name not in self.policies:
            raise unknown("policy", name, self.policies)
        return self.policies[name]

    def run(self, episode: Episode, on_step: OnStep | None = None) -> Trace:
        """Resets the home to an episode, plans, executes, and judges the goal.

        Raises:
            UserError: no plan reaches the goal from the start, a policy for a step is missing, or
                a policy returns something that is no action.
        """
        self.simulator.reset([self.env_id], [episode])
        return _Run(self, episode, on_step).run()


class _Run:
    """One episode in progress."""

    def __init__(self, executor: Executor, episode: Episode, on_step: OnStep | None) -> None:
        self.executor = executor
        self.limits, self.rules = executor.limits, executor.rules
        self.episode, self.on_step = episode, on_step
        self.world = executor.simulator.state([executor.env_id])
        self.plan = self._new_plan()
        self.first_plan = self.plan
        for step in self.plan:
            executor.policy(step.skill)
            executor.skills(step.skill)
        self.trace = Trace(episode, self.plan.stages, [step.skill for step in self.plan])
        self.stage_goals = stage_goals(self.plan)
        self.trace.stage_goals = {name: StageMark() for name in self.stage_goals}
        self._mark_stage_goals()
        self.over = ""

    def run(self) -> Trace:
        trace = self.trace
        index = 0
        while not self.over:
            if index == len(self.plan):
                if not self._should_restart():
                    break
                index = 0
                continue
            stage = self._execute(self.plan[index])
            failed = not stage.succeeded
            if failed and self.rules.replan and not self.over and self._replanned():
                index = 0
                continue
            index += 1
        self._finish()
        self._judge()
        return trace

    def _new_plan(self) -> Plan:
        thresholds, options = self.executor.predicates, self.rules.plan
        return plan(problem_from_episode(self.episode, self.world, thresholds, options))

    def _replanned(self) -> bool:
        """Whether there is a new plan; without one the old plan goes on."""
        if self.trace.plans > self.rules.max_replans:
            return False
        try:
            self.plan = self._new_plan()
        except UnsolvableError:
            margin = Margin.flag(False)
            self._blame(None, "plan", margin, "no_plan")
            return False
        self.trace.plans += 1
        return True

    def _should_restart(self) -> bool:
        """At the plan's end: whether the goal was lost on the way and a new plan restores it."""
        if not self.rules.replan or all(margin.holds for margin in self._goals().values()):
            return False
        return self._replanned() and len(self.plan) > 0

    # One step of the plan.

    def _execute(self, step: Step) -> Stage:
        stage = Stage(
            index=self._stage_index(step),
            plan=self.trace.plans - 1,
            name=step.name,
            skill=step.skill,
            action=(step.action, *step.args),
            before=self._observe(),
            preconditions={clause_text(c): self._clause(c) for c in step.preconditions},
        )
        if self.rules.snapshots:
            key = len(self.trace.stages)
            self.trace.snapshots[key] = self.executor.simulator.snapshot(self.executor.env_id)
        self.trace.stages.append(stage)
        unmet = {name: m for name, m in stage.preconditions.items() if not m.holds}
        if unmet:
            stage.ended_by = "precondition"
            self._blame(stage, *next(iter(unmet.items())), "precondition")
        else:
            self._run_skill(step, stage)
            self._check_effects(step, stage)
            if not self.over and self.rules.add_arm_rest:
                self._reset_arm(step, stage)
        stage.after = self._observe()
        self._notice_losses(step, stage)
        return stage

    def _run_skill(self, step: Step, stage: Stage) -> None:
        skill, policy = self.executor.skills(step.skill), self.executor.policy(step.skill)
        goal = skill_goal(step, self.plan.problem.entities, self.world)
        mask, limits = skill.mask(), self.limits.of(step.skill)
        carried = int(self.world.held[0]) if not mask[action_layout.GRIP] else -1
        force_before = float(self.world.force_total[0])
        policy.begin(self.episode, goal, self.world)
        while not stage.ended_by and stage.steps < limits.steps:
            action, stop = self._act(policy, mask)
            if stop and step.skill == "navigate" and self._too_far_to_stop(goal):
                action[action_layout.STOP], stop = -1.0, False
            self._step(action)
            stage.steps += 1
            stage.force_peak_n = max(stage.force_peak_n, float(self.world.force[0]))
            stage.force_sum_n = float(self.world.force_total[0]) - force_before
            stage.results = skill.results(goal, self.world, stop, self.executor.thresholds)
            stage.ended_by = self._end_of_skill(skill, goal, stage, stop, carried)
            self._tell(step, "skill", stage.steps, limits.steps)
        stage.ended_by = stage.ended_by or "timeout"
        stage.diagnosis = dict(policy.diagnosis())
        if stage.ended_by == "timeout" and self.limits.end_on_timeout:
            self.over = "timeout"

    def _end_of_skill(
        self, skill: Skill, goal: SkillGoal, stage: Stage, stop: bool, carried: int
    ) -> str:
        """Why a skill ends after this control step, "" while it goes on."""
        if self.over:
            return self.over
        if carried >= 0 and self.world.held[0] != carried:
            return "dropped"
        if self.limits.of(skill.name).exceeded(float(self.world.force[0]), stage.force_sum_n):
            return "skill_force"
        if stage.results["success"].holds:
            return "success"
        failure = skill.failure(goal, self.world, self.executor.thresholds)
        return failure or ("skill_stop" if stop else "")

    def _check_effects(self, step: Step, stage: Stage) -> None:
        stage.effects = {text(atom): self._atom(atom) for atom in step.adds}
        if self.over:
            self._blame_end(step, stage)
            return
        missing = {name: m for name, m in stage.effects.items() if not m.holds}
        if stage.ended_by == "dropped":
            self._blame_drop(step, stage)
        elif missing:
            self._blame(stage, *next(iter(missing.items())), stage.ended_by)

    def _reset_arm(self, step: Step, stage: Stage) -> None:
        """Brings the arm back to rest. The hand keeps an object, and lets go of a handle.

        A policy that stops at once, because the arm is well where it is, costs no step, unless
        there is a handle to let go of.
        """
        policy = self.executor.policy(RESET_ARM)
        mask = np.zeros(action_layout.SIZE, dtype=bool)
        mask[action_layout.ARM] = True
        held, limit = int(self.world.held[0]), self.limits.reset_arm_steps
        policy.begin(self.episode, SkillGoal(), self.world)
        stop = False
        while not stop and not self.over and stage.reset_steps < limit:
            action, stop = self._act(policy, mask)
            if stop and stage.reset_steps == 0 and self.world.held_joint[0] < 0:
                return
            self._step(action)
            stage.reset_steps += 1
            stage.force_peak_n = max(stage.force_peak_n, float(self.world.force[0]))
            self._tell(step, RESET_ARM, stage.reset_steps, limit)
        if self.over:
            self._blame_end(step, stage)
        elif held >= 0 and self.world.held[0] != held:
            self._blame_drop(step, stage)

    # Control steps.

    def _act(self, policy: SkillPolicy, mask: np.ndarray) -> tuple[np.ndarray, bool]:
        """The policy's masked action, and whether it calls stop, masked or not."""
        depth = None
        if policy.depth_size is not None:
            depth = self.executor.simulator.depth([self.executor.env_id], *policy.depth_size)[0]
        action = np.asarray(policy.act(self.world, depth), dtype=float)
        if action.shape != (action_layout.SIZE,) or not np.all(np.isfinite(action)):
            raise UserError(
                f"policy: {type(policy).__name__} returned {action.shape} {action}; "
                f"an action is ({action_layout.SIZE},) finite numbers"
            )
        allowed = masked(np.clip(action, -1.0, 1.0)[None], mask, self.world.held)[0]
        return allowed, bool(action[action_layout.STOP] > 0)

    def _step(self, action: np.ndarray) -> None:
        """One control step; sets `over` when a limit of the episode is reached."""
        self.executor.simulator.step([self.executor.env_id], action[None])
        self.world = self.executor.simulator.state([self.executor.env_id])
        self.trace.steps += 1
        self.trace.force_peak_n = max(self.trace.force_peak_n, float(self.world.force[0]))
        self._mark_stage_goals()
        if not all(margin.holds for margin in self._forces().values()):
            self.over = "force_limit"
        elif self.trace.steps >= self.limits.episode_steps:
            self.over = "episode_steps"

    def _mark_stage_goals(self) -> None:
        """Notes when each stage goal first held, and first held in its turn."""
        known: dict[Atom, bool] = {}
        turn = True
        for name, atoms in self.stage_goals.items():
            mark = self.trace.stage_goals[name]
            wanted = mark.first is None or (turn and mark.in_turn is None)
            if wanted and all(self._holds(atom, known) for atom in atoms):
                if mark.first is None:
                    mark.first = self.trace.steps
                if turn:
                    mark.in_turn = self.trace.steps
            turn = mark.in_turn is not None

    def _finish(self) -> None:
        """Waits for things to settle, and calls stop; the wait is cut short to leave it room."""
        if self.over:
            self.trace.ended_by = self.over
            return
        room = self.limits.episode_steps - self.trace.steps - 1
        wait = min(self.limits.wait_end_steps, room)
        last = self.plan[-1] if len(self.plan) else None
        for number in range(wait + 1):
            action = np.zeros(action_layout.SIZE)
            action[action_layout.GRIP] = 1.0 if self.world.held[0] >= 0 else -1.0
            action[action_layout.STOP] = 1.0 if number == wait else -1.0
            self._step(action)
            if last is not None:
                self._tell(last, "wait", number + 1, wait + 1)
            if self.over == "force_limit":
                self.trace.ended_by = self.over
                self._blame(None, "force", self._worst_force(), self.over)
                return
        self.trace.ended_by = "stop"

    def _judge(self) -> None:
        """Full-task success: stop was called and every atom of the goal holds."""
        trace = self.trace
        trace.goal = self._goals()
        trace.force_total_n = float(self.world.force_total[0])
        trace.success = trace.ended_by == "stop" and all(m.holds for m in trace.goal.values())
        if self.rules.snapshots:
            snapshot = self.executor.simulator.snapshot(self.executor.env_id)
            trace.snapshots[len(trace.stages)] = snapshot
        self._mark_recovered()
        missing = next(((n, m) for n, m in trace.goal.items() if not m.holds), None)
        if not trace.success and missing and trace.first_cause is None:
            self._blame(self._maker(missing[0]), *missing, "lost")

    # Blame.

    def _blame(self, stage: Stage | None, predicate: str, margin: Margin, reason: str) -> None:
        index, name, skill = (stage.index, stage.name, stage.skill) if stage else (-1, "", "")
        self.trace.causes.append(
            Cause(
                index, name, skill, predicate, margin.margin, margin.unit, reason, self.trace.steps
            )
        )

    def _blame_end(self, step: Step, stage: Stage) -> None:
        """The episode ended within a stage: by force, or by what effects and skill still lacked."""
        if self.over == "force_limit":
            self._blame(stage, "force", self._worst_force(), self.over)
            return
        parts = {f"{step.skill}.{n}": m for n, m in stage.results.items() if n != "success"}
        lacking = [(n, m) for n, m in {**stage.effects, **parts}.items() if not m.holds]
        purpose = (text(step.purpose), self._atom(step.purpose))
        self._blame(stage, *(lacking or [purpose])[0], self.over)

    def _blame_drop(self, step: Step, stage: Stage) -> None:
        """The object in the hand fell: the one held at the start, else the one that was picked."""
        entities = self.plan.problem.entities
        held = stage.before.held
        dropped = entities.objects[held].name if held >= 0 else step.args[0]
        atom = ("holding", dropped, entities.robot.name)
        self._blame(stage, text(atom), self._atom(atom), "dropped")

    def _notice_losses(self, step: Step, stage: Stage) -> None:
        """Goals that held before a stage and no longer do, though the plan did not ask for it."""
        assert stage.after is not None
        ended = {text(atom) for atom in step.deletes}
        for name, margin in stage.after.goals.items():
            lost = stage.before.goals[name].holds and not margin.holds
            if lost and name.startswith("object_at") and name not in ended:
                self._blame(stage, name, margin, "lost")

    def _mark_recovered(self) -> None:
        """A cause is made good when its goal holds at the end, or its stage succeeded later."""
        last = {stage.index: stage for stage in self.trace.stages if stage.reached}
        for cause in self.trace.causes:
            if cause.reason in ("force_limit", "episode_steps", "no_plan"):
                continue
            goal = self.trace.goal.get(cause.predicate)
            if goal is not None:
                cause.recovered = goal.holds
            elif cause.stage in last and last[cause.stage].before.step >= cause.step:
                cause.recovered = last[cause.stage].succeeded

    def _maker(self, predicate: str) -> Stage | None:
        """The last stage that made a predicate true."""
        makers = [stage for stage in self.trace.stages if predicate in stage.effects]
        return makers[-1] if makers else None

    # What is true now.

    def _atom(self, atom: Atom) -> Margin:
        scene = PredicateContext(self.world, self.plan.problem.entities, self.executor.predicates)
        return evaluate(atom, scene)

    def _holds(self, atom: Atom, known: dict[Atom, bool]) -> bool:
        """Whether an atom holds now; `known` remembers it."""
        if atom not in known:
            known[atom] = self._atom(atom).holds
        return known[atom]

    def _clause(self, clause: Clause) -> Margin:
        """A disjunction: its first literal that holds, or its last one."""
        margin = Margin.flag(False)
        for literal in clause:
            margin = self._atom(literal.atom)
            if not literal.holds:
                margin = Margin(not margin.holds, -margin.margin, margin.unit)
            if margin.holds:
                break
        return margin

    def _goals(self) -> dict[str, Margin]:
        return {text(atom): self._atom(atom) for atom in self.plan.problem.goal}

    def _forces(self) -> dict[str, Margin]:
        limits, world = self.limits, self.world
        pairs = {
            "instant": (world.force, limits.force_instant_n),
            "total": (world.force_total, limits.force_total_n),
        }
        return {
            name: Margin.below(float(force[0]), limit, "N")
            for name, (force, limit) in pairs.items()
            if limit is not None
        }

    def _worst_force(self) -> Margin:
        return min(self._forces().values(), key=lambda margin: margin.margin)

    def _too_far_to_stop(self, goal: SkillGoal) -> bool:
        away = planar_distance(self.world.base, np.asarray([goal.position]))[0]
        return bool(away > self.rules.nav_stop_within_m)

    def _stage_index(self, step: Step) -> int:
        same = [s.index for s in self.first_plan if (s.action, s.args) == (step.action, step.args)]
        return same[0] if same else -1

    def _observe(self) -> Observation:
        world, count = self.world, len(self.episode.objects)
        return Observation(
            step=self.trace.steps,
            base=_floats(world.base[0]),
            arm=_floats(world.arm[0]),
            ee_pos=_floats(world.ee_pos[0]),
            held=int(world.held[0]),
            held_joint=int(world.held_joint[0]),
            objects=tuple(_floats(pos) for pos in world.object_pos[0, :count]),
            joints=_floats(world.joints[0]),
            goals=self._goals(),
        )

    def _tell(self, step: Step, phase: str, phase_step: int, phase_limit: int) -> None:
        if self.on_step is None:
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
            margin=self._atom(step.purpose),
            object=self.plan.problem.entities[step.args[0]].object,
        )
        self.on_step(self.world, info)


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
