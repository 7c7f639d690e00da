"""The monolithic skill, one policy for the whole task: reward, start states and plans."""

import math
from typing import Any

import kinematic_home as fake
import numpy as np
import pytest
from small_worlds import failure, results, run, world
from test_agents import execute, load

from eval.running import agents, stand_ins
from planner.execution.limits import ExecutionRules
from planner.predicates import PredicateThresholds
from skills import registry
from skills.core.interface import SkillGoal
from skills.envs.environment import SkillEnv
from skills.starts.source import start_episodes
from tpsrl.errors import UserError
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

GOAL = SkillGoal(0, (1.0, 2.5, 0.8))  # under the resting cup


def scene(
    thing: tuple[float, float, float],
    cup: tuple[float, float, float] = (1.0, 2.5, 1.0),
    **changes: Any,
) -> WorldState:
    """Returns a world with object 0 and the cup at given points, object 1 out of the way."""
    places = np.array([[thing, (1.0, 0.0, 0.8)]])
    return world(object_pos=places, ee_pos=np.array([cup]), **changes)


def held(thing: tuple[float, float, float], index: int = 0) -> WorldState:
    return scene(thing, thing, held=np.array([index]))


def terms(*worlds: WorldState, **settings: object) -> dict[str, float]:
    _, outcome = run("monolithic", GOAL, *worlds, **settings)  # type: ignore[arg-type]
    return {name: float(value[0]) for name, value in outcome.reward_terms.items()}


def test_the_reward_counts_reaching_carrying_and_returning_to_rest() -> None:
    away = (1.0, 4.0, 0.8)
    reach = terms(scene(away, (1.0, 3.0, 0.8)), scene(away, (1.0, 3.2, 0.8)))
    assert reach["distance"] == pytest.approx(0.2)
    carry = terms(scene(away), held(away), held((1.0, 3.7, 0.8)))
    assert carry["distance"] == pytest.approx(0.3)
    there = (1.0, 2.5, 0.8)
    rest = terms(held(there), scene(there, (1.0, 3.0, 1.0)), scene(there, (1.0, 2.9, 1.0)))
    assert rest["distance"] == pytest.approx(0.1)


def test_a_grasp_and_a_release_at_the_goal_are_rewarded_once() -> None:
    away, there = (1.0, 4.0, 0.8), (1.0, 2.5, 0.8)
    assert terms(scene(away), held(away))["pick"] == 1.0
    assert terms(scene(away), held(away))["distance"] == 0.0
    assert terms(scene(away), held(away), scene(away), held(away))["pick"] == 0.0
    assert terms(scene(away), held(away), scene(away))["place"] == 0.0
    out = scene(there, (1.0, 3.2, 1.0))
    assert terms(held(there), out)["place"] == 1.0
    assert terms(held(there), out, held(there), out)["place"] == 0.0


def test_moving_away_from_the_object_costs_even_with_another_in_the_hand() -> None:
    thing = (1.0, 4.0, 0.8)
    far = scene(thing, (1.0, 2.0, 0.8), held=np.array([1]))
    near = scene(thing, (1.0, 3.0, 0.8), held=np.array([1]))
    assert terms(near, far)["distance"] == pytest.approx(-1.0)
    assert terms(far, near)["distance"] == pytest.approx(1.0)


def test_success_requires_object_at_goal_empty_hand_and_rest() -> None:
    there = (1.0, 2.5, 0.7)
    good = results("monolithic", GOAL, scene(there))
    assert {name: margin.holds for name, margin in good.items()} == {
        "success": True, "at_goal": True, "released": True, "rest": True,
    }  # fmt: skip
    assert good["at_goal"].margin == pytest.approx(0.05)
    lacking = {
        "at_goal": scene((1.0, 2.7, 0.8)),
        "released": scene(there, held=np.array([0])),
        "rest": scene(there, (1.0, 2.9, 1.0)),
    }
    for name, state in lacking.items():
        found = results("monolithic", GOAL, state)
        assert [part for part, margin in found.items() if not margin.holds] == ["success", name]


def test_only_a_premature_stop_is_a_failure() -> None:
    away, other = (1.0, 4.0, 0.8), np.array([1])
    assert failure("monolithic", GOAL, scene(away), stop=True) == "stopped"
    assert failure("monolithic", GOAL, held(away), scene(away)) == ""
    assert failure("monolithic", GOAL, scene(away), scene(away, held=other)) == ""
    assert failure("monolithic", GOAL, scene((1.0, 2.5, 0.8)), stop=True) == ""


def test_all_actions_are_allowed_and_start_and_goal_are_observed() -> None:
    skill = registry.get("monolithic").definition
    assert skill.mask().all()
    start = start_episodes("monolithic", [0], "val", 0, 4, processes=1)[0]
    env = SkillEnv("monolithic", starts=[start], num_objects=4, sensors="habitat")
    shown, _ = env.reset(seed=0)
    x, y, yaw = start.episode.robot_start
    thing, target = start.episode.objects[start.goal.object].pos, start.goal.position
    assert target is not None
    for place, (px, py, _) in ((6, thing), (8, target)):
        polar = (math.hypot(px - x, py - y), math.atan2(py - y, px - x) - yaw)
        seen = shown["state"][place : place + 2]
        assert seen[0] == pytest.approx(polar[0], abs=0.02)
        assert math.cos(seen[1] - polar[1]) == pytest.approx(1.0, abs=1e-3)
    env.close()


def test_starts_have_an_empty_hand_and_the_goal_of_the_object() -> None:
    starts = start_episodes("monolithic", range(4), "val", 0, 4, processes=1)
    assert all(start.episode.held == -1 for start in starts)
    assert all(start.goal.position == start.episode.targets[0].goal for start in starts)
    assert len({start.episode.robot_start for start in starts}) == 4
    again = start_episodes("monolithic", [2], "val", 0, 4, processes=1)
    assert again[0].episode == starts[2].episode


def test_the_scripted_skills_in_sequence_solve_most_starts() -> None:
    env = SkillEnv("monolithic", num_objects=4, num_episodes=3, split="val")
    policy = registry.get("monolithic").make_scripted()
    solved = 0
    for number in range(3):
        env.reset(options={"start": number})
        policy.begin(env.episode, env.goal, env.world)
        over, rewards = False, []
        while not over:
            shown, reward, terminated, truncated, info = env.step(policy.act(env.world))
            over = terminated or truncated
            rewards.append(reward)
            assert np.isfinite(shown["state"]).all()
        solved += info["success"]
        assert np.isfinite(rewards).all() and (sum(rewards) > 90.0) == info["success"]
    assert solved >= 2
    env.close()


def test_the_monolithic_agent_needs_a_checkpoint_or_stand_ins() -> None:
    with pytest.raises(UserError, match=r"skills\.monolithic: agent monolithic needs a checkpoint"):
        agents.Policies.of(load("agent=monolithic"))
    settings = load("agent=monolithic", "agent.stand_ins=true")
    acting = agents.Policies.of(settings)
    assert isinstance(acting["monolithic"], stand_ins.PlanForOne)
    described = agents.describe_preset(settings.agent, {}, {"monolithic"})
    assert described["stand_ins"] == {"monolithic": "scripted skills of the plan"}
    with pytest.raises(UserError, match="agent monolithic has no such skill; it has monolithic"):
        agents.Policies.of(load("agent=monolithic", "skills.pick=x"))


def test_a_plan_has_one_step_per_object_limited_only_by_the_episode() -> None:
    rules = ExecutionRules(one_skill="monolithic")
    trace = execute(fake.KinematicHome(), rules, monolithic=fake.Idle())
    assert [stage.name for stage in trace.stages] == ["move obj_0"]
    assert (trace.stages[0].steps, trace.ended_by) == (3000, "episode_steps")
    assert list(trace.stage_goals) == ["stage_0_5", "stage_1", "stage_1_5", "stage_2"]
    given_up = execute(fake.KinematicHome(), rules, monolithic=fake.Quit())
    assert [stage.ended_by for stage in given_up.stages] == ["skill_stop"] * 2


def test_a_stand_in_executes_the_plan_for_each_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = {"navigate": fake.Drive, "pick": fake.Grab, "place": fake.Put}
    kind = type(registry.get("pick"))
    monkeypatch.setattr(kind, "make_scripted", lambda spec: Stopping(made[spec.name]()))
    rules = ExecutionRules(one_skill="monolithic")
    policy = stand_ins.stand_in("monolithic", rules, PredicateThresholds())
    home = fake.KinematicHome()
    trace = execute(home, rules, monolithic=policy)
    assert trace.success and [s.ended_by for s in trace.stages] == ["success"] * 2
    assert all(stage.in_hand and stage.travelled_m > 1.0 for stage in trace.stages)
    assert np.allclose(home.objects[:2], [[0, -2, 0.8], [1, -2, 0.8]], atol=0.03)


class Stopping:
    """Policy of the kinematic home that stops once its task is done and the arm is at rest."""

    depth_size = None

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def begin(self, *given: Any) -> None:
        self.policy.begin(*given)

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        action = self.policy.act(world, depth)
        if not isinstance(self.policy, fake.Drive):
            still = bool(np.abs(action[:3]).max() < 0.01)
            action[act.STOP] = 1.0 if self.policy.done and still else -1.0
        return action

    def diagnosis(self) -> dict[str, object]:
        return {}
