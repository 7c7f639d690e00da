"""Scripted skills in worlds that differ from their plans."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from skills import registry
from skills.envs.environment import SkillEnv
from skills.pick import scripted as pick
from skills.scripted.routine import Routine
from skills.starts.start import Start
from tpsrl.motion.suction.grasps import plan_pick
from tpsrl.world import action as act
from tpsrl.world.objects import object_kind
from tpsrl.world.state import WorldState

SKILLS = registry.planned()
OUT_OF_REACH_M = 2.5


class Envs:
    """One environment for each skill, created at the first use."""

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
    """Returns a scripted skill at the beginning of an episode."""
    env.reset(options={"start": start})
    routine = registry.get(env.batch.spec.name).make_scripted()
    assert isinstance(routine, Routine)
    routine.begin(env.episode, env.goal, env.world)
    return routine


def acts(env: SkillEnv, routine: Routine, steps: int = 300) -> bool:
    """Runs the routine and returns whether the episode ends in success."""
    for _ in range(steps):
        action, valid = routine.choose(env.world)
        assert valid
        *_, terminated, _, info = env.step(action)
        if terminated:
            return bool(info["success"])
    return False


def until(env: SkillEnv, routine: Routine, phase: str, steps: int = 5) -> None:
    """Runs the routine until `steps` steps of a phase have passed."""
    left = steps
    while left:
        action, _ = routine.choose(env.world)
        left -= routine.phase == phase
        *_, terminated, _, _ = env.step(action)
        assert not terminated
    routine.choose(env.world)


def edited(world: WorldState, **changes: np.ndarray) -> WorldState:
    """Returns a copy of the world with some arrays replaced."""
    fields = {name: getattr(world, name) for name in WorldState.__slots__}
    return WorldState(**{**fields, **changes})


def at(world: WorldState, index: int, place: np.ndarray) -> WorldState:
    """Returns a copy of the world with the centre of an object at another place."""
    places = np.array(world.object_pos)
    places[0, index] = place
    return edited(world, object_pos=places)


def put(env: SkillEnv, by: np.ndarray, quat: tuple[float, ...] | None = None) -> None:
    """Restarts the episode with its object moved by (3,) and turned."""
    record, goal = env.episode, env.goal
    thing = record.objects[goal.object]
    x, y, z = (float(value) for value in thing.pos + by)
    objects = list(record.objects)
    objects[goal.object] = dataclasses.replace(thing, pos=(x, y, z), quat=quat or thing.quat)
    changed = dataclasses.replace(record, objects=tuple(objects))
    env.batch.reset([0], [Start(changed, goal)])


def bent(world: WorldState, joint: int, by: float) -> WorldState:
    """Returns a copy of the world with a joint of the arm moved by an angle."""
    arm = np.array(world.arm)
    arm[0, joint] += by
    return edited(world, arm=arm)


def plans(routine: Routine) -> int:
    return int(routine.diagnosis()["plans"])


@pytest.mark.parametrize("skill", SKILLS)
def test_a_finished_skill_keeps_stopping_until_the_world_changes(envs: Envs, skill: str) -> None:
    env = envs(skill)
    routine = begun(env)
    for _ in range(300):
        action, valid = routine.choose(env.world)
        assert valid
        if action[act.STOP] > 0:
            break
        env.step(action)
    before = plans(routine)
    for _ in range(3):
        action, valid = routine.choose(env.world)
        assert valid and action[act.STOP] > 0
        assert not np.any(action[act.ARM]) and not np.any(action[act.BASE])
    assert plans(routine) == before
    away = np.array(env.world.base)
    away[0, 2] += 1.0
    if skill == "navigate":
        action, valid = routine.choose(edited(env.world, base=away))
        assert valid and action[act.STOP] < 0 and action[9] < 0.0


def test_a_slightly_displaced_arm_returns_to_its_path_without_replanning(envs: Envs) -> None:
    env = envs("pick")
    routine = begun(env)
    until(env, routine, "rest")
    for joint in range(7):
        for by in (-0.08, 0.08):
            action, valid = routine.choose(bent(env.world, joint, by))
            assert valid and np.sign(action[joint]) == -np.sign(by)
    assert plans(routine) == 1


def test_an_arm_far_off_its_path_is_replanned(envs: Envs) -> None:
    env = envs("pick")
    routine = begun(env)
    until(env, routine, "rest")
    _, valid = routine.choose(bent(env.world, 0, 0.3))
    assert valid and plans(routine) == 2
    assert routine.diagnosis()["off_arm"] == 1


def test_a_base_off_its_path_drives_to_the_same_stance(envs: Envs) -> None:
    env = envs("pick")
    routine = begun(env)
    until(env, routine, "drive", 15)
    base = np.array(env.world.base)
    yaw = base[0, 2]
    base[0, :2] += 0.3 * np.array([-math.sin(yaw), math.cos(yaw)])
    _, valid = routine.choose(edited(env.world, base=base))
    assert valid and plans(routine) == 1
    assert routine.diagnosis()["drove_anew"] == 1


def test_a_moved_object_is_replanned_and_picked_at_its_new_place(envs: Envs) -> None:
    env = envs("pick")
    routine = begun(env)
    assert routine.choose(env.world)[1]
    put(env, np.array([0.12, 0.0, 0.0]))
    assert acts(env, routine)
    assert routine.diagnosis()["outdated"] == 1 and plans(routine) == 2


def test_a_fallen_object_is_replanned_and_picked_where_it_lies(envs: Envs) -> None:
    env = envs("pick")
    routine = begun(env)
    assert routine.choose(env.world)[1]
    half = object_kind(env.episode.objects[env.goal.object].name).half
    lower = half[1] - half[2] + 0.002
    put(env, np.array([0.0, 0.12, lower]), (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0))
    assert acts(env, routine)
    assert routine.diagnosis()["outdated"] == 1 and plans(routine) == 2


def test_no_plan_is_made_while_an_object_rolls(envs: Envs) -> None:
    env = envs("pick")
    routine = begun(env)
    assert routine.choose(env.world)[1]
    index, world = env.goal.object, env.world
    place = np.array(world.object_pos[0, index])
    for step in range(20):
        moved = at(world, index, place + np.array([0.01 * step, 0.0, 0.0]))
        assert routine.choose(moved)[1]
    assert plans(routine) == 1


def test_an_unreachable_object_gives_no_motion_after_a_single_search(
    envs: Envs, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = envs("pick")
    routine = begun(env)
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
        action, valid = routine.choose(at(env.world, index, high))
        assert not valid and not np.any(action[act.ARM]) and not np.any(action[act.BASE])
    assert searches == 1
    assert routine.choose(env.world)[1]  # reachable again


def test_a_scripted_policy_without_a_valid_action_stops(envs: Envs) -> None:
    env = envs("pick")
    routine, index = begun(env), env.goal.object
    high = np.array(env.world.object_pos[0, index])
    high[2] = OUT_OF_REACH_M
    assert routine.act(at(env.world, index, high))[act.STOP] > 0
