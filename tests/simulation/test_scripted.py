import dataclasses
import itertools
import math

import numpy as np
import pytest

from planner.execution.episode_home import EpisodeHome
from skills.core import task
from skills.core.conditions import margins
from skills.core.interface import SkillGoal
from skills.core.state import Goals
from skills.registry import get, planned
from tpsrl.errors import UserError
from tpsrl.motion.arm.rrt import duration, plan_path
from tpsrl.sim.datasets import load
from tpsrl.world import action as act
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker, Bodies
from tpsrl.world.geometry import quat_matrix

NOTHING = Bodies(np.zeros(0, int), np.zeros((0, 3)), np.zeros((0, 3, 3)), np.zeros((0, 3)))


@pytest.fixture(scope="module")
def episode():
    return load("tidy_house", "val", 1, seed=0, num_objects=12)[0]


def run_skill(home, episode, name, goal, limit):
    """Runs a scripted skill in a home until success or its limit.

    Returns:
        World, steps, peak force, condition margins and the policy's diagnosis.
    """
    spec = get(name)
    policy, skill, settings = spec.make_scripted(), spec.definition, spec.load_settings()
    home.begin_skill()
    world = home.world
    policy.begin(episode, goal, world)
    state = task.begin(skill, Goals.of([goal]), world, spec.thresholds)
    mask, peak = skill.mask(), 0.0
    steps = 0
    for _ in range(limit):
        action = policy.act(world)
        assert np.all(np.abs(action) <= 1.0 + 1e-9)
        stop = bool(action[act.STOP] > 0)
        kept = 1.0 if world.held[0] >= 0 else -1.0
        action = np.where(mask, action, 0.0)
        if not mask[act.GRIP]:
            action[act.GRIP] = kept
        home.step(action)
        steps += 1
        world = home.world
        peak = max(peak, float(world.force[0]))
        stopped = np.array([stop])
        verdict = task.evaluate(skill, state, world, stopped, settings, spec.thresholds)
        state.memory = verdict.evaluation.memory
        if verdict.success[0] or stop:
            break
    return world, steps, peak, margins(verdict.conditions), policy.diagnosis()


def agree(home, held, metres):
    """Checks the grasp of an object that stood upright against its true pose."""
    world, grasp = home.world, home.grasp
    assert world.held[0] == held and grasp is not None
    turn = quat_matrix(world.ee_quat[0])
    centre = world.ee_pos[0] + turn @ grasp.centre
    np.testing.assert_allclose(centre, world.object_pos[0, held], atol=metres)
    up = quat_matrix(world.object_quat[0, held])[:, 2]
    assert turn @ grasp.up @ up > math.cos(math.radians(3.0))


def test_an_arm_path_avoids_a_post_with_clearance():
    start = np.array([-0.9, -1.2, 0.79, 0.81, -0.29, 2.05, 0.0])
    goal = start.copy()
    goal[0] = 0.9
    post = Bodies(
        np.array([0]), np.array([[0.6, 0.0, 0.9]]), np.eye(3)[None], np.array([[0.1, 0.05, 0.4]])
    )
    checker = ArmChecker(ARM_SPHERES, post)
    free = ArmChecker(ARM_SPHERES, NOTHING)
    direct = plan_path(free, start, goal, 0.02)
    path = plan_path(checker, start, goal, 0.02)
    assert len(direct) == 2 and duration(direct) == pytest.approx(1.8 / 0.0125)
    assert path is not None and len(path) > 2
    np.testing.assert_array_equal(path[0], start)
    np.testing.assert_array_equal(path[-1], goal)
    for a, b in itertools.pairwise(path):
        for t in np.linspace(0, 1, 40):
            assert checker.clearance(a + t * (b - a)) > 0.015
    assert plan_path(checker, start, goal, 0.02, seed=5) is not None


def test_a_path_to_a_posture_in_collision_is_refused():
    wall = Bodies(np.array([0]), np.array([[0.6, 0, 1.0]]), np.eye(3)[None], np.full((1, 3), 0.2))
    away = REST.copy()
    away[0] = 1.5
    assert plan_path(ArmChecker(ARM_SPHERES, wall), away, REST, 0.0) is None


def test_scripted_skills_move_an_object_to_its_goal_by_actions_only(simulator, episode):
    simulator.reset([0], [episode])
    home = EpisodeHome(simulator, 0)
    target = episode.targets[0]
    start = home.world.object_pos[0, target.object]
    goal = SkillGoal(object=target.object, position=tuple(start))
    _, _, _, results, _ = run_skill(home, episode, "navigate", goal, 300)
    assert results["success"].holds
    world, steps, peak, results, diagnosis = run_skill(home, episode, "pick", goal, 200)
    assert world.held[0] == target.object, diagnosis
    assert steps <= 200 and peak < 2000.0
    agree(home, target.object, 0.01)
    carried = SkillGoal(object=-1, position=target.goal)
    _, _, _, results, _ = run_skill(home, episode, "navigate", carried, 300)
    assert results["success"].holds
    put = dataclasses.replace(carried, object=target.object)
    world, _, _, results, diagnosis = run_skill(home, episode, "place", put, 200)
    assert world.held[0] == -1 and home.grasp is None, diagnosis
    # The limit is the skill's threshold, because the quickest place within it is chosen.
    assert np.linalg.norm(world.object_pos[0, target.object] - target.goal) < 0.15


def test_an_object_that_is_put_into_the_hand_hangs_upright(simulator, episode):
    simulator.reset([0], [episode])
    home = EpisodeHome(simulator, 0)
    assert home.grasp is None
    home.replace(dataclasses.replace(episode, held=1))
    agree(home, 1, 0.002)
    home.replace(episode)
    assert home.grasp is None


def test_the_same_start_gives_the_same_actions(simulator, episode):
    goal = SkillGoal(object=episode.targets[0].object, position=episode.objects[0].pos)
    runs = []
    for _ in range(2):
        simulator.reset([0], [episode])
        policy = get("navigate").make_scripted()
        policy.begin(episode, goal, simulator.state([0]))
        actions = []
        for _ in range(40):
            actions.append(policy.act(simulator.state([0])))
            simulator.step([0], actions[-1][None])
        runs.append(np.array(actions))
    np.testing.assert_array_equal(runs[0], runs[1])


def test_every_skill_of_a_plan_has_a_scripted_version():
    for name in planned():
        assert get(name).make_scripted() is not get(name).make_scripted()
        assert get(name).agent_names()[0] == "scripted"


def test_a_skill_without_a_scripted_version_is_refused_with_a_remedy():
    with pytest.raises(UserError, match=r"skills\.pointnav.*`tpsrl train pointnav`"):
        get("pointnav").make_scripted()
    assert "scripted" not in get("pointnav").agent_names()
