"""The scripted skills as teachers: what they say in states that somebody else has brought about."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.teacher import Random, drifting
from skills import registry
from skills.core.interface import Teacher
from skills.envs.environment import SkillEnv
from skills.pick import scripted as pick
from skills.pick.servo import ServoPick
from skills.scripted.grasps import plan_pick
from skills.scripted.routine import Routine
from skills.starts.start import Start
from tpsrl.errors import UserError
from tpsrl.world import action as act
from tpsrl.world.objects import object_kind
from tpsrl.world.state import WorldState

SKILLS = registry.planned()
STATES = 200
OUT_OF_REACH_M = 2.5


class Envs:
    """An environment of each skill, made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, SkillEnv] = {}

    def __call__(self, skill: str) -> SkillEnv:
        if skill not in self._made:
            options: dict[str, Any] = {"num_objects": 12, "num_episodes": 2, "split": "val"}
            self._made[skill] = SkillEnv(skill, horizon=1_000, **options)
        return self._made[skill]

    def close(self) -> None:
        for env in self._made.values():
            env.close()


@pytest.fixture(scope="module")
def envs() -> Iterator[Envs]:
    envs = Envs()
    yield envs
    envs.close()


def begun(env: SkillEnv, start: int = 0) -> Routine:
    """A scripted skill as a teacher, at the beginning of an episode."""
    env.reset(options={"start": start})
    teacher = registry.get(env.batch.spec.name).make_scripted()
    assert isinstance(teacher, Routine)
    teacher.begin(env.episode, env.goal, env.world)
    return teacher


def acts(env: SkillEnv, teacher: Routine, steps: int = 300) -> bool:
    """Has the teacher act; whether that ends in success."""
    for _ in range(steps):
        action, valid = teacher.label(env.world)
        assert valid
        *_, terminated, _, info = env.step(action)
        if terminated:
            return bool(info["success"])
    return False


def until(env: SkillEnv, teacher: Routine, phase: str, steps: int = 5) -> None:
    """Has the teacher act until so many steps of a phase are over."""
    left = steps
    while left:
        action, _ = teacher.label(env.world)
        left -= teacher.phase == phase
        *_, terminated, _, _ = env.step(action)
        assert not terminated
    teacher.label(env.world)


def edited(world: WorldState, **changes: np.ndarray) -> WorldState:
    """The same world but for some of its arrays."""
    fields = {name: getattr(world, name) for name in WorldState.__slots__}
    return WorldState(**{**fields, **changes})


def at(world: WorldState, index: int, place: np.ndarray) -> WorldState:
    """The same world with an object (its centre) elsewhere."""
    places = np.array(world.object_pos)
    places[0, index] = place
    return edited(world, object_pos=places)


def put(env: SkillEnv, by: np.ndarray, quat: tuple[float, ...] | None = None) -> None:
    """Begins the episode again with its object moved (3,) and turned."""
    record, goal = env.episode, env.goal
    thing = record.objects[goal.object]
    x, y, z = (float(value) for value in thing.pos + by)
    objects = list(record.objects)
    objects[goal.object] = dataclasses.replace(thing, pos=(x, y, z), quat=quat or thing.quat)
    changed = dataclasses.replace(record, objects=tuple(objects))
    env.batch.reset([0], [Start(changed, goal)])


def bent(world: WorldState, joint: int, by: float) -> WorldState:
    """The same world with a joint of the arm bent further."""
    arm = np.array(world.arm)
    arm[0, joint] += by
    return edited(world, arm=arm)


def plans(teacher: Routine) -> int:
    return int(teacher.diagnosis()["plans"])


@pytest.mark.parametrize("skill", SKILLS)
def test_every_skill_of_a_plan_has_a_teacher(skill: str) -> None:
    assert isinstance(registry.get(skill).make_teacher(), Teacher)


def test_a_teacher_of_its_own_comes_before_the_scripted_version() -> None:
    assert isinstance(registry.get("pick").make_teacher(), ServoPick)
    scripted = dataclasses.replace(registry.get("pick"), teacher=None)
    assert isinstance(scripted.make_teacher(), Routine)
    only = dataclasses.replace(registry.get("pointnav"), teacher=ServoPick)
    assert isinstance(only.make_teacher(), ServoPick)


def test_a_skill_without_a_scripted_version_has_no_teacher() -> None:
    with pytest.raises(UserError, match=r"skills\.pointnav: it has no scripted version"):
        registry.get("pointnav").make_teacher()


def test_a_policy_that_labels_nothing_is_no_teacher() -> None:
    spec = dataclasses.replace(registry.get("pick"), scripted=lambda: object(), teacher=None)
    with pytest.raises(UserError, match=r"skills\.pick: .* object cannot teach"):
        spec.make_teacher()


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS)
def test_a_teacher_knows_what_to_do_wherever_random_actions_lead(envs: Envs, skill: str) -> None:
    env, rng = envs(skill), np.random.default_rng(0)
    teacher, does, valid = begun(env), Random(rng), 0
    for _ in range(STATES):
        action, known = teacher.label(env.world)
        assert action.shape == (act.SIZE,) and np.all(np.abs(action) <= 1.0 + 1e-9)
        assert known or not (np.any(action[act.ARM]) or np.any(action[act.BASE]))
        valid += known
        env.step(does(action))
    assert valid > 0.8 * STATES, teacher.diagnosis()


@pytest.mark.slow
@pytest.mark.parametrize("skill", ["pick", "place", "open_drawer"])
def test_the_same_states_get_the_same_labels(envs: Envs, skill: str) -> None:
    env, does = envs(skill), drifting(np.random.default_rng(1))
    teacher = begun(env)
    worlds, labels = [], []
    for _ in range(60):
        worlds.append(env.world)
        labels.append(teacher.label(env.world))
        env.step(does(labels[-1][0]))
    again = registry.get(skill).make_scripted()
    assert isinstance(again, Teacher)
    again.begin(env.episode, env.goal, worlds[0])
    for world, (action, valid) in zip(worlds, labels, strict=True):
        repeated, known = again.label(world)
        np.testing.assert_array_equal(repeated, action)
        assert known == valid


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS)
def test_a_teacher_takes_over_from_a_learner_that_drifts(envs: Envs, skill: str) -> None:
    env, does = envs(skill), drifting(np.random.default_rng(2))
    teacher = begun(env)
    for _ in range(30):
        action, _ = teacher.label(env.world)
        *_, terminated, _, _ = env.step(does(action))
        assert not terminated
    assert acts(env, teacher)


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS)
def test_what_is_done_is_labelled_stop_until_something_changes(envs: Envs, skill: str) -> None:
    env = envs(skill)
    teacher = begun(env)
    for _ in range(300):
        action, valid = teacher.label(env.world)
        assert valid
        if action[act.STOP] > 0:
            break
        env.step(action)
    before = plans(teacher)
    for _ in range(3):
        action, valid = teacher.label(env.world)
        assert valid and action[act.STOP] > 0
        assert not np.any(action[act.ARM]) and not np.any(action[act.BASE])
    assert plans(teacher) == before
    away = np.array(env.world.base)
    away[0, 2] += 1.0
    if skill == "navigate":
        action, valid = teacher.label(edited(env.world, base=away))
        assert valid and action[act.STOP] < 0 and action[9] < 0.0


@pytest.mark.slow
def test_an_arm_that_is_pushed_a_little_is_led_back_by_the_same_plan(envs: Envs) -> None:
    env = envs("pick")
    teacher = begun(env)
    until(env, teacher, "rest")
    for joint in range(7):
        for by in (-0.08, 0.08):
            action, valid = teacher.label(bent(env.world, joint, by))
            assert valid and np.sign(action[joint]) == -np.sign(by)
    assert plans(teacher) == 1


@pytest.mark.slow
def test_an_arm_that_is_pushed_far_off_its_path_gets_another(envs: Envs) -> None:
    env = envs("pick")
    teacher = begun(env)
    until(env, teacher, "rest")
    _, valid = teacher.label(bent(env.world, 0, 0.3))
    assert valid and plans(teacher) == 2
    assert teacher.diagnosis()["off_arm"] == 1


def test_a_base_that_is_pushed_off_its_way_drives_to_the_same_place(envs: Envs) -> None:
    env = envs("pick")
    teacher = begun(env)
    until(env, teacher, "drive", 15)
    base = np.array(env.world.base)
    yaw = base[0, 2]
    base[0, :2] += 0.3 * np.array([-math.sin(yaw), math.cos(yaw)])
    _, valid = teacher.label(edited(env.world, base=base))
    assert valid and plans(teacher) == 1
    assert teacher.diagnosis()["drove_anew"] == 1


@pytest.mark.slow
def test_an_object_that_stands_elsewhere_is_gone_for_where_it_is(envs: Envs) -> None:
    env = envs("pick")
    teacher = begun(env)
    assert teacher.label(env.world)[1]
    put(env, np.array([0.12, 0.0, 0.0]))
    assert acts(env, teacher)
    assert teacher.diagnosis()["outdated"] == 1 and plans(teacher) == 2


@pytest.mark.slow
def test_an_object_that_was_knocked_over_is_gone_for_where_it_lies(envs: Envs) -> None:
    env = envs("pick")
    teacher = begun(env)
    assert teacher.label(env.world)[1]
    half = object_kind(env.episode.objects[env.goal.object].name).half
    lower = half[1] - half[2] + 0.002
    put(env, np.array([0.0, 0.12, lower]), (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0))
    assert acts(env, teacher)
    assert teacher.diagnosis()["outdated"] == 1 and plans(teacher) == 2


def test_while_an_object_rolls_no_new_plan_is_made(envs: Envs) -> None:
    env = envs("pick")
    teacher = begun(env)
    assert teacher.label(env.world)[1]
    index, world = env.goal.object, env.world
    place = np.array(world.object_pos[0, index])
    for step in range(20):
        moved = at(world, index, place + np.array([0.01 * step, 0.0, 0.0]))
        assert teacher.label(moved)[1]
    assert plans(teacher) == 1


def test_what_cannot_be_done_gets_no_label_and_costs_one_search(
    envs: Envs, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = envs("pick")
    teacher = begun(env)
    searches = 0

    def counted(*arguments: Any) -> Any:
        nonlocal searches
        searches += 1
        return plan_pick(*arguments)

    monkeypatch.setattr(pick, "plan_pick", counted)
    index = env.goal.object
    high = np.array(env.world.object_pos[0, index])
    high[2] = OUT_OF_REACH_M
    for _ in range(5):
        action, valid = teacher.label(at(env.world, index, high))
        assert not valid and not np.any(action[act.ARM]) and not np.any(action[act.BASE])
    assert searches == 1
    assert teacher.label(env.world)[1]  # back where it was


def test_a_policy_that_acts_stops_where_it_knows_nothing(envs: Envs) -> None:
    env = envs("pick")
    teacher, index = begun(env), env.goal.object
    high = np.array(env.world.object_pos[0, index])
    high[2] = OUT_OF_REACH_M
    assert teacher.act(at(env.world, index, high))[act.STOP] > 0
