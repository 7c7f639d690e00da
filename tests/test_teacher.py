"""The scripted skills as teachers: what they say in states that somebody else has brought about."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.teacher import Drifting, Random
from skills import registry
from skills.core.interface import Teacher
from skills.core.skill import Skill
from skills.envs.environment import SkillEnv
from skills.scripted.routine import Routine
from tpsrl.errors import UserError
from tpsrl.sim.base import Snapshot
from tpsrl.world import action as act
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
    """A teacher at the beginning of an episode."""
    env.reset(options={"start": start})
    teacher = registry.get(env.batch.spec.name).make_teacher()
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


def until(env: SkillEnv, teacher: Routine, phase: str, steps: int = 5) -> np.ndarray:
    """Has the teacher act until so many steps of a phase are over; its last label."""
    left = steps
    while left:
        action, _ = teacher.label(env.world)
        left -= teacher.phase == phase
        *_, terminated, _, _ = env.step(action)
        assert not terminated
    return teacher.label(env.world)[0]


def edited(world: WorldState, **changes: np.ndarray) -> WorldState:
    """The same world but for some of its arrays."""
    fields = {name: getattr(world, name) for name in WorldState.__slots__}
    return WorldState(**{**fields, **changes})


def at(world: WorldState, index: int, place: np.ndarray) -> WorldState:
    """The same world with an object (its centre) elsewhere."""
    places = np.array(world.object_pos)
    places[0, index] = place
    return edited(world, object_pos=places)


def bent(world: WorldState, joint: int, by: float) -> WorldState:
    """The same world with a joint of the arm bent further."""
    arm = np.array(world.arm)
    arm[0, joint] += by
    return edited(world, arm=arm)


def plans(teacher: Routine) -> int:
    return int(teacher.diagnosis()["plans"])


def idle(path_ahead: np.ndarray) -> int:
    """The joint that an action moves least; the base of the arm and its last joints reach far."""
    return int(np.argmin(np.abs(path_ahead[act.ARM])))


@pytest.mark.parametrize("skill", SKILLS)
def test_every_skill_of_a_plan_has_a_teacher(skill: str) -> None:
    assert isinstance(registry.get(skill).make_teacher(), Teacher)


def test_a_skill_without_a_scripted_version_has_no_teacher() -> None:
    with pytest.raises(UserError, match=r"skills\.pointnav: it has no scripted version"):
        registry.get("pointnav").make_teacher()


def test_a_policy_that_labels_nothing_is_no_teacher() -> None:
    spec = dataclasses.replace(registry.get("pick"), scripted=lambda: object())
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
        assert known or not np.any(action[act.ARM]) and not np.any(action[act.BASE])
        valid += known
        env.step(does(action))
    assert valid > 0.8 * STATES, teacher.diagnosis()


@pytest.mark.slow
@pytest.mark.parametrize("skill", ["pick", "place", "open_drawer"])
def test_the_same_states_get_the_same_labels(envs: Envs, skill: str) -> None:
    env, does = envs(skill), Drifting(np.random.default_rng(1))
    teacher = begun(env)
    worlds, labels = [], []
    for _ in range(60):
        worlds.append(env.world)
        labels.append(teacher.label(env.world))
        env.step(does(labels[-1][0]))
    again = registry.get(skill).make_teacher()
    again.begin(env.episode, env.goal, worlds[0])
    for world, (action, valid) in zip(worlds, labels, strict=True):
        repeated, known = again.label(world)
        np.testing.assert_array_equal(repeated, action)
        assert known == valid


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS)
def test_a_teacher_takes_over_from_a_learner_that_drifts(envs: Envs, skill: str) -> None:
    env, does = envs(skill), Drifting(np.random.default_rng(2))
    teacher = begun(env)
    for _ in range(30):
        action, _ = teacher.label(env.world)
        *_, terminated, _, _ = env.step(does(action))
        assert not terminated
    assert acts(env, teacher)
    assert teacher.label(env.world)[0][act.STOP] > 0
