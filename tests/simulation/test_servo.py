"""Servoing demonstrators: their success, and labels that depend on the state only."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import pytest

from skills import registry
from skills.articulated.servo import drive_to
from skills.core.interface import Demonstrator, SkillGoal
from skills.demos.disturbing import Disturbed
from skills.envs.environment import SkillEnv
from skills.place.starts import STARTS
from skills.scripted.servoing import (
    ARRIVED_M,
    ARRIVED_RAD,
    drive,
    is_covered,
    line_free,
    stances,
    towards,
    wrap,
)
from skills.starts import dataset
from skills.starts.source import start_episodes
from tpsrl.motion.scene import Scene, look
from tpsrl.sim import datasets
from tpsrl.world import action as act
from tpsrl.world.collision import REST
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import floor_map
from tpsrl.world.scenarios import load_scenario

SKILLS = {"pick": (0, 1), "place": (1, 2), "navigate": (1, 2)}  # starts of the training split
DOORS = {"open_fridge": (0, 1), "close_fridge": (0,), "open_drawer": (0,)}
BASE_EPISODES, OBJECTS = 3, 5
FROM_NOW = (("pick", False), ("navigate", False))
STEPS = 300


class Envs:
    """One environment for each skill, created at the first use."""

    def __init__(self) -> None:
        self._made: dict[str, SkillEnv] = {}

    def __call__(self, skill: str) -> SkillEnv:
        if skill not in self._made:
            starts = start_episodes(skill, range(BASE_EPISODES), "train", 0, OBJECTS, processes=1)
            self._made[skill] = SkillEnv(skill, starts=starts, num_objects=OBJECTS, num_episodes=1)
        return self._made[skill]


@pytest.fixture(scope="module")
def envs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envs]:
    envs = Envs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(dataset, "BASE_EPISODES", BASE_EPISODES)
        yield envs
    for env in envs._made.values():
        env.close()


def begun(env: SkillEnv) -> Demonstrator:
    """Returns a teacher that has seen only the current state of the episode."""
    teacher = registry.get(env.batch.spec.name).make_demonstrator()
    teacher.begin(env.episode, env.goal, env.world)
    return teacher


CHOSEN = [(skill, start) for skill, starts in (SKILLS | DOORS).items() for start in starts]


@pytest.mark.parametrize(("skill", "start"), CHOSEN)
def test_a_teacher_reaches_success_from_a_start(envs: Envs, skill: str, start: int) -> None:
    env = envs(skill)
    env.reset(options={"start": start})
    teacher = begun(env)
    for _ in range(STEPS):
        label, valid = teacher.label(env.world)
        assert valid and label.shape == (act.SIZE,) and np.abs(label).max() <= 1.0 + 1e-9
        *_, terminated, _, info = env.step(label)
        if terminated:
            break
    assert info["success"], env.failures[info["failure"]]


@pytest.mark.parametrize(("skill", "seen"), [*itertools.product(SKILLS, (True,)), *FROM_NOW])
def test_the_label_of_a_state_does_not_depend_on_earlier_states(
    envs: Envs, skill: str, seen: bool
) -> None:
    """Holds until only the way back is left, which depends on its start.

    The label is compared with that of a second teacher. With `seen`, the second teacher has
    observed the first state of the episode; without, which suffices for skills with an empty
    hand because no object can slip, it has observed no earlier state.
    """
    env = envs(skill)
    env.reset(options={"start": SKILLS[skill][1]})
    first, does = env.world, Disturbed(np.random.default_rng(3), 0.2, 0.2)
    teacher = begun(env)
    compared, moved = 0, 0.0
    for step in range(120):
        label, valid = teacher.label(env.world)
        if env.world.held[0] != first.held[0]:
            break
        if step % 20 == 5:
            other = begun(env)
            if seen:
                other.begin(env.episode, env.goal, first)
                other.label(first)
            again, known = other.label(env.world)
            assert known == valid
            np.testing.assert_allclose(again, label, atol=1e-3)
            compared, moved = compared + 1, moved + float(np.abs(label).max())
        *_, terminated, _, _ = env.step(does(label))
        if terminated:
            break
    assert compared >= 2 and moved / compared > 0.3


def test_a_teacher_forgets_the_previous_episode(envs: Envs) -> None:
    env = envs("pick")
    env.reset(options={"start": 1})
    expected, _ = begun(env).label(env.world)
    env.reset(options={"start": 0})
    teacher = begun(env)
    other, _ = teacher.label(env.world)
    env.reset(options={"start": 1})
    teacher.begin(env.episode, env.goal, env.world)
    label, _ = teacher.label(env.world)
    np.testing.assert_allclose(label, expected, atol=1e-9)
    assert np.abs(other - expected).max() > 0.1


def test_an_object_enters_a_covered_shelf_from_the_front(envs: Envs) -> None:
    base = datasets.load(load_scenario("in_fridge"), "train", 5, 0, 1, 1)[4]
    shelf = base.objects[0].pos
    opened = dataclasses.replace(base, articulation={"fridge_push_point": 1.5})
    assert STARTS.towards is not None
    draw = STARTS.towards(opened, SkillGoal(0, shelf), np.random.default_rng(0))
    start = next(start for start in map(draw, range(200)) if start is not None)
    env = SkillEnv("place", starts=[start], num_objects=1, num_episodes=1)
    env.reset(options={"start": 0})
    scene = look(env.episode, env.world)
    assert is_covered(scene, np.array(shelf))
    assert not is_covered(scene, np.array([*scene.base[:2], 0.5]))
    assert not is_covered(scene, np.array([*shelf[:2], 2.5]))  # above the fridge
    teacher, objects = begun(env), []
    for _ in range(STEPS):
        objects.append(np.array(env.world.object_pos[0, 0]))
        *_, terminated, _, info = env.step(teacher.label(env.world)[0])
        if terminated:
            break
    env.close()
    assert info["success"], env.failures[info["failure"]]
    # Above its final place, the object is hardly higher than at the end.
    near = [at for at in objects if np.linalg.norm(at[:2] - objects[-1][:2]) < 0.1]
    assert near[0][2] < objects[-1][2] + 0.06


def test_an_object_out_of_reach_gives_no_valid_label(envs: Envs) -> None:
    env = envs("pick")
    env.reset(options={"start": 0})
    teacher = begun(env)
    world = env.world
    places = np.array(world.object_pos)
    places[0, env.goal.object, 2] = 2.5
    fields = {name: getattr(world, name) for name in type(world).__slots__}
    label, valid = teacher.label(type(world)(**{**fields, "object_pos": places}))
    assert not valid and not np.any(label[act.ARM]) and not np.any(label[act.BASE])
    assert teacher.label(world)[1]


class Floor:
    """Scene of a bare floor on which the arm collides at some headings."""

    def __init__(self, base: np.ndarray, blocked: Callable[[float], bool] = lambda yaw: False):
        self.base, self._blocked = base, blocked

    def checker(self, pose: np.ndarray) -> "Floor":
        return Floor(pose, self._blocked)

    def clearance(self, posture: np.ndarray, at_most: float) -> float:
        return 0.0 if self._blocked(float(wrap(self.base[2]))) else at_most


def driven(scene: Floor, goal: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yields the actions of a drive of 120 steps, each executed without inertia."""
    for _ in range(120):
        speed, turn = drive_to(cast(Scene, scene), REST, goal)
        yield speed, turn
        yaw = scene.base[2]
        scene.base[:2] += act.STEP_M * speed * np.array([np.cos(yaw), np.sin(yaw)])
        scene.base[2] += act.STEP_RAD * turn


@pytest.mark.parametrize("yaw", [-2.5, -0.8, 0.0, 1.2, 3.0])
@pytest.mark.parametrize("at", [(-0.6, 0.3), (-0.2, -0.3), (0.3, 0.1)])
def test_a_drive_to_a_pose_ends_there(at: tuple[float, float], yaw: float) -> None:
    scene, goal = Floor(np.array([*at, yaw])), np.array([0.1, 0.05, 0.4])
    for speed, turn in driven(scene, goal):
        assert max(abs(speed), abs(turn)) <= 1.0
    assert np.linalg.norm(scene.base[:2] - goal[:2]) < 0.11
    assert abs(wrap(scene.base[2] - goal[2])) < 0.02


@pytest.mark.parametrize(("wall", "sign"), [(0.0, -1.0), (np.pi, 1.0)])
def test_a_drive_goes_backwards_if_the_arm_would_face_a_wall_on_the_way(
    wall: float, sign: float
) -> None:
    """The path is along x; with the arm towards the wall, the robot cannot stand at its end."""
    goal = np.array([1.0, 0.0, 0.5 * np.pi])
    scene = Floor(np.array([0.0, 0.0, 0.5 * np.pi]), lambda yaw: abs(wrap(yaw - wall)) < 0.5)
    moved = [speed for speed, _ in driven(scene, goal) if abs(speed) > 0.05]
    assert len(moved) > 3 and all(np.sign(speed) == sign for speed in moved)
    assert np.linalg.norm(scene.base[:2] - goal[:2]) < 0.11


# -- parts of a motion ----------------------------------------------------------------------------


def test_stances_are_free_and_face_the_point(envs: Envs) -> None:
    env = envs("pick")
    env.reset(options={"start": 0})
    scene = look(env.episode, env.world)
    point = scene.position[env.goal.object]
    found = stances(scene, point)
    assert len(found) > 3
    floor = floor_map(scene.layout, joints=scene.joints)
    for x, y, yaw in found:
        assert floor.clearance(float(x), float(y)) >= BASE_RADIUS
        off = np.arctan2(point[1] - y, point[0] - x) - yaw
        assert abs(np.arctan2(np.sin(off), np.cos(off))) < 1e-6


@pytest.mark.parametrize("away", [(1.0, 0.4), (0.4, -0.3), (-0.4, 0.1), (-1.5, 1.0)])
def test_a_drive_ends_at_its_stance_facing_the_point(away: tuple[float, float]) -> None:
    point = np.array([2.0, 1.0])
    stance = np.array([1.3, 1.0, 0.0])
    base = np.array([stance[0] - away[0], stance[1] - away[1], 0.5])
    for _ in range(200):
        speed, turn = drive(base, stance, point)
        assert max(abs(speed), abs(turn)) <= 1.0
        base[:2] += act.STEP_M * speed * np.array([np.cos(base[2]), np.sin(base[2])])
        base[2] += act.STEP_RAD * turn
    assert np.hypot(*(base[:2] - stance[:2])) < 1.6 * ARRIVED_M
    assert abs(np.arctan2(*(point - base[:2])[::-1]) - base[2]) < 2.0 * ARRIVED_RAD


def test_the_arm_goes_straight_and_slows_down_before_its_end(envs: Envs) -> None:
    posture = REST + np.array([0.4, -0.2, 0.0, 0.1, 0.0, 0.0, 0.3])
    arm, sizes = REST.copy(), []
    for _ in range(60):
        step = towards(arm, posture)
        sizes.append(float(np.abs(step).max()))
        arm = arm + act.ARM_DELTA_RAD * step
        share = (arm - REST)[0] / 0.4
        np.testing.assert_allclose(arm, REST + share * (posture - REST), atol=1e-9)
    assert sizes[0] == pytest.approx(1.0) and sizes[-1] < 0.01
    np.testing.assert_allclose(arm, posture, atol=1e-3)
    env = envs("pick")
    env.reset(options={"start": 0})
    scene = look(env.episode, env.world)
    checker = scene.checker(scene.base)
    assert line_free(checker, REST, REST, 0.0)
