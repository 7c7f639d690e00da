import dataclasses
import math
from collections.abc import Container

import numpy as np
import pytest
from homes import DRAWER, FRIDGE, IDLE, LAYOUT_A, before_handle, episode

from skills.articulated.scripted import ScriptedClose
from skills.core import task
from skills.core.conditions import Margin, margins
from skills.core.interface import SkillGoal
from skills.core.state import Goals
from skills.registry import get
from tpsrl.motion.base.stances import ahead
from tpsrl.motion.base.tip_tracking import base_velocity, tip_in_world
from tpsrl.motion.doors.door_grasps import open_goal, plan_approach
from tpsrl.motion.doors.door_motion import (
    Drag,
    can_back_off,
    clear_of_link,
    foresee,
    foresee_all,
    hand_to_front,
    without_load,
)
from tpsrl.motion.doors.holds import Holds, holds, off_face
from tpsrl.motion.scene import Scene, look
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.collision import BOX, Bodies
from tpsrl.world.episode import Episode
from tpsrl.world.footprint import posed_spheres
from tpsrl.world.handles import handle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.objects import object_kind
from tpsrl.world.reach import point_to_base, to_base
from tpsrl.world.state import JOINTS, WorldState

# Starts of the skills' own distributions: handle, joint position, base pose.
STARTS = {
    "open_drawer": (DRAWER, 0.0, (-0.979, -0.569, -1.88)),
    "close_drawer": (DRAWER, 0.457, (-0.579, -0.637, -3.098)),
    "open_fridge": (FRIDGE, 0.0, (-1.128, -3.536, -2.78)),
    "close_fridge": (FRIDGE, 1.198, (-1.007, -3.507, -3.103)),
}
HORIZON = 200  # of open and close under protocol habitat


@dataclasses.dataclass(slots=True)
class Run:
    """Recording of a scripted skill up to its stop."""

    marker: str
    worlds: list[WorldState]
    actions: list[np.ndarray]
    results: dict[str, Margin]
    diagnosis: dict[str, object]
    # Scene at the start of the handle's motion, the motion foreseen there, and the world after it.
    grasped: Scene
    foreseen: Drag
    dragged: WorldState


@pytest.fixture(scope="module")
def runs(simulator: Simulator) -> dict[str, Run]:
    return {skill: run(simulator, skill, *start) for skill, start in STARTS.items()}


def run(
    simulator: Simulator,
    skill: str,
    marker: str,
    joint: float,
    base: tuple[float, float, float],
    anew: Container[int] = (),
) -> Run:
    """Runs a skill from a start; a new policy without history begins before each step in `anew`."""
    start = episode(LAYOUT_A, base, articulation={marker: joint})
    spec, goal = get(skill), SkillGoal(marker=marker)
    policy, mask = spec.make_scripted(), spec.definition.mask()
    simulator.reset([0], [start])
    world = simulator.state([0])
    state = task.begin(spec.definition, Goals.of([goal]), world, spec.thresholds)
    policy.begin(start, goal, world)
    worlds, actions, phases, stop = [world], [], [], False
    while not stop and len(actions) < HORIZON:
        if len(actions) in anew:
            policy = spec.make_scripted()
            policy.begin(start, goal, world)
        action = np.where(mask, policy.act(world), IDLE * ~mask)
        phases.append(policy.phase)
        stop = bool(action[act.STOP] > 0)
        simulator.step([0], action[None])
        world = simulator.state([0])
        worlds.append(world)
        actions.append(action)
    stopped, settings = np.array([stop]), spec.load_settings()
    verdict = task.evaluate(spec.definition, state, world, stopped, settings, spec.thresholds)
    results = margins(verdict.conditions)
    first, last = phases.index("drag"), len(phases) - phases[::-1].index("drag")
    scene = look(start, worlds[first])
    where = handle(LAYOUT_A, marker)
    wanted = open_goal(where)[0] if skill.startswith("open") else 0.0
    now = float(worlds[first].joints[0, where.index])
    foreseen = foresee(scene, where, scene.base, scene.arm, now, wanted)
    diagnosis = policy.diagnosis()
    return Run(marker, worlds, actions, results, diagnosis, scene, foreseen, worlds[last])


def joints(worlds: list[WorldState], marker: str) -> np.ndarray:
    return np.array([world.joints[0, JOINTS.index(marker)] for world in worlds])


# -- the skills --------------------------------------------------------------------------------


@pytest.mark.parametrize("skill", STARTS)
def test_a_scripted_skill_succeeds_and_stops(runs: dict[str, Run], skill: str) -> None:
    done = runs[skill]
    assert {name for name, part in done.results.items() if not part.holds} == set(), done.diagnosis
    assert done.actions[-1][act.STOP] > 0
    assert not any(action[act.STOP] > 0 for action in done.actions[:-1])
    assert len(done.actions) < HORIZON
    assert max(world.force[0] for world in done.worlds) < 100.0, "it bumped into something"
    assert not any(world.violation[0] for world in done.worlds)


@pytest.mark.parametrize("skill", ["open_drawer", "open_fridge"])
def test_opening_holds_the_handle_only_while_it_moves_it(runs: dict[str, Run], skill: str) -> None:
    done = runs[skill]
    opening = joints(done.worlds, done.marker)
    held = np.array([world.held_joint[0] for world in done.worlds])
    assert set(held.tolist()) == {-1, JOINTS.index(done.marker)}
    (held_steps,) = np.nonzero(held >= 0)
    assert len(held_steps) == np.ptp(held_steps) + 1, "it took hold more than once"
    before, after = opening[: held_steps[0]], opening[held_steps[-1] :]
    assert np.abs(before).max() < 0.01
    assert np.ptp(after) < 0.05, "the handle was moved after it was let go"
    assert after[-1] > open_goal(handle(LAYOUT_A, done.marker))[-1]
    others = np.delete(done.worlds[-1].joints[0], JOINTS.index(done.marker))
    assert np.abs(others).max() < 0.01


@pytest.mark.parametrize("skill", ["close_drawer", "close_fridge"])
def test_closing_pushes_without_suction(runs: dict[str, Run], skill: str) -> None:
    done = runs[skill]
    assert all(world.held_joint[0] == -1 for world in done.worlds)
    assert joints(done.worlds, done.marker)[-1] < 0.03


def test_a_closed_drawer_is_left_unchanged(simulator: Simulator) -> None:
    start = before_handle(DRAWER, 1.1)
    simulator.reset([0], [start])
    world = simulator.state([0])
    policy = ScriptedClose()
    policy.begin(start, SkillGoal(marker=DRAWER), world)
    for _ in range(40):
        action = policy.act(world)
        if action[act.STOP] > 0:
            break
        simulator.step([0], action[None])
        world = simulator.state([0])
    assert action[act.STOP] > 0 and world.step[0] < 30
    np.testing.assert_allclose(world.base[0], start.robot_start, atol=0.01)
    assert world.force_total[0] == 0.0


@pytest.mark.parametrize("skill", STARTS)
def test_a_skill_can_be_restarted_at_any_step(simulator: Simulator, skill: str) -> None:
    again = run(simulator, skill, *STARTS[skill], anew=range(15, HORIZON, 15))
    assert {name for name, part in again.results.items() if not part.holds} == set()
    assert len(again.actions) < HORIZON
    assert max(world.force[0] for world in again.worlds) < 300.0
    held = np.array([world.held_joint[0] >= 0 for world in again.worlds]).astype(int)
    assert (np.diff(held) == 1).sum() == (1 if skill.startswith("open") else 0)


def test_the_same_start_gives_the_same_actions(simulator: Simulator, runs: dict[str, Run]) -> None:
    again = run(simulator, "open_fridge", *STARTS["open_fridge"])
    np.testing.assert_array_equal(again.actions, runs["open_fridge"].actions)


# -- foreseen motions -----------------------------------------------------------------------------


@pytest.mark.parametrize("skill", STARTS)
def test_the_simulated_motion_agrees_with_the_foreseen_one(
    runs: dict[str, Run], skill: str
) -> None:
    done = runs[skill]
    reached = float(joints([done.dragged], done.marker)[0])
    assert reached == pytest.approx(done.foreseen.joint, abs=0.06)
    moved = done.dragged.base[0] - done.foreseen.base
    assert np.hypot(*moved[:2]) < 0.06
    assert abs(math.remainder(moved[2], 2 * math.pi)) < 0.12
    # The base has moved far in between, so the comparison is meaningful.
    assert np.hypot(*(done.dragged.base[0] - done.grasped.base)[:2]) > 0.25


def scene_of(simulator: Simulator, start: Episode) -> Scene:
    simulator.reset([0], [start])
    return look(start, simulator.state([0]))


def at_the_drawer(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Returns stance and posture with the cup on the closed drawer."""
    approach = plan_approach(scene, handle(LAYOUT_A, DRAWER), 0.0, opening=True)
    assert approach is not None
    return approach.stance, approach.posture


def with_a_body(scene: Scene, centre: np.ndarray, half: tuple[float, float, float]) -> Scene:
    """Returns the scene with one loose box of any size."""
    box = Bodies(np.array([BOX]), centre[None], np.eye(3)[None], np.array([half]))
    return dataclasses.replace(scene, kinds=(object_kind("003_cracker_box"),), objects=box)


def test_a_foreseen_motion_ends_before_the_arm_collides(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, FRIDGE)
    scene = scene_of(simulator, before_handle(FRIDGE, 1.1))
    approach = plan_approach(scene, where, 0.0, opening=True)
    assert approach is not None
    stance, posture = approach.stance, approach.posture
    free = foresee(scene, where, stance, posture, 0.0, 1.0)
    assert free.joint == pytest.approx(1.0)
    # A fist-sized box at the forearm's position when the door is open by 0.6 rad.
    halfway = foresee(scene, where, stance, posture, 0.0, 0.6).base
    centres = posed_spheres(posture)[0]
    forearm = centres[np.argmin(np.abs(np.hypot(centres[:, 0], centres[:, 1]) - 0.5))]
    barred = with_a_body(scene, tip_in_world(halfway, forearm), (0.04, 0.04, 0.04))
    assert barred.footprint(posture, without=where.index).margin(*stance) > 0.05
    drag = foresee(barred, where, stance, posture, 0.0, 1.0)
    assert 0.1 < drag.joint < 0.6
    assert barred.footprint(posture, without=where.index).margin(*drag.base) > 0.0
    # Up to its end, the motion is the same as without the obstacle.
    same = foresee(scene, where, stance, posture, 0.0, drag.joint)
    np.testing.assert_allclose(drag.base, same.base, atol=0.01)


def test_the_robot_can_back_off_only_if_its_way_is_free(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, DRAWER)
    scene = scene_of(simulator, before_handle(DRAWER, 0.95))
    stance, posture = at_the_drawer(scene)
    drag = Drag(0.0, stance)
    footprint = scene.footprint(posture, without=where.index)
    assert can_back_off(footprint, drag.base, 0.35)
    footprint = scene.footprint(posture, without=where.index)
    far = next(d for d in np.arange(0.4, 6.0, 0.05) if footprint.margin(*ahead(stance, -d)) < 0.0)
    assert not can_back_off(footprint, drag.base, float(far))


def test_the_foreseen_base_motion_keeps_the_cup_on_the_handle(simulator: Simulator) -> None:
    for marker, goal in ((DRAWER, 0.3), (FRIDGE, 0.6)):
        where = handle(LAYOUT_A, marker)
        scene = scene_of(simulator, before_handle(marker, 1.1))
        approach = plan_approach(scene, where, 0.0, opening=True)
        assert approach is not None
        drag = foresee(scene, where, approach.stance, approach.posture, 0.0, goal)
        assert drag.joint == pytest.approx(goal)
        tip = cup_pose(approach.posture)[0]
        before, after = (tip_in_world(base, tip) for base in (approach.stance, drag.base))
        (pos, turn), (moved, turned) = where.pose(0.0), where.pose(goal)
        expected = moved + turned @ turn.T @ (before - pos)
        np.testing.assert_allclose(after[:2], expected[:2], atol=1e-9)


def test_a_closed_drawer_is_foreseen_to_stay_in_place(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, DRAWER)
    scene = scene_of(simulator, before_handle(DRAWER, 0.95))
    stance, posture = at_the_drawer(scene)
    drag = foresee(scene, where, stance, posture, 0.0, 0.0)
    assert drag.joint == 0.0
    np.testing.assert_allclose(drag.base, stance)


def test_the_base_velocity_gives_the_tip_its_requested_velocity() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        base = rng.uniform(-3, 3, 3)
        tip = np.array([rng.uniform(0.4, 1.0), rng.uniform(-0.4, 0.4), 0.8])
        wanted = rng.uniform(-1, 1, 3)
        linear, angular = base_velocity(tip, to_base(base, wanted))
        step = 1e-6
        after = base + step * np.array(
            [linear * math.cos(base[2]), linear * math.sin(base[2]), angular]
        )
        slope = (tip_in_world(after, tip) - tip_in_world(base, tip)) / step
        np.testing.assert_allclose(slope[:2], wanted[:2], atol=1e-5)


def test_foreseeing_all_holds_at_once_agrees_with_foreseeing_each(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, FRIDGE)
    scene = scene_of(simulator, before_handle(FRIDGE, 1.1))
    table = holds(round(float(where.point(0.0)[2]), 2), opening=True)
    some = table.rows(np.arange(0, len(table.inward), 97))
    stances = np.array([stance_of(some, row, FRIDGE) for row in range(len(some.inward))])
    goal = 1.2
    reached = foresee_all(LAYOUT_A, FRIDGE, stances, some.posture, goal)
    assert np.ptp(reached) > 1.0
    for stance, posture, joint in zip(stances, some.posture, reached, strict=True):
        # The home has more obstacles than the fridge.
        alone = foresee(scene, where, stance, posture, 0.0, goal).joint
        assert alone <= joint + 1e-9 or joint == 0.0


def stance_of(table: Holds, row: int, marker: str) -> np.ndarray:
    """Returns the base pose (3,) that puts the cup of a row on the closed face."""
    where = handle(LAYOUT_A, marker)
    into = -where.normal(0.0)
    yaw = math.atan2(into[1], into[0]) - table.inward[row]
    there = where.point(0.0) - table.apart[row] * into
    tip = tip_in_world(np.array([0.0, 0.0, yaw]), table.tip[row])
    return np.array([*(there - tip)[:2], yaw])


def test_objects_in_a_drawer_are_excluded_as_obstacles_of_its_motion(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, DRAWER)
    scene = scene_of(simulator, before_handle(DRAWER, 0.95))
    pos, turn = where.pose(0.4)
    inside, beside = pos.copy(), pos + turn @ np.array([0.0, 0.9, 0.0])
    for centre, left in ((inside, 0), (beside, 1)):
        one = dataclasses.replace(
            with_a_body(scene, centre, (0.03, 0.03, 0.03)),
            position=centre[None],
            rotation=np.eye(3)[None],
        )
        assert len(without_load(one, where, 0.4).kinds) == left
        assert len(without_load(one, handle(LAYOUT_A, FRIDGE), 0.4).kinds) == 1


# -- arm holds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", [DRAWER, FRIDGE])
@pytest.mark.parametrize("opening", [True, False])
def test_every_hold_has_the_cup_on_the_face(marker: str, opening: bool) -> None:
    where = handle(LAYOUT_A, marker)
    height = round(float(where.point(0.0)[2]), 2)
    table = holds(height, opening)
    assert len(table.inward) > 1000
    for row in range(0, len(table.inward), 211):
        stance, posture = stance_of(table, row, marker), table.posture[row]
        tip, turn = cup_pose(posture)
        np.testing.assert_allclose(tip, table.tip[row])
        off = (tip_in_world(stance, tip) - where.point(0.0)) @ where.normal(0.0)
        facing = turn[:, 0] @ to_base(stance, -where.normal(0.0))
        assert off == pytest.approx(float(off_face(facing, opening)), abs=1e-6)
        assert abs(tip[2] - height) < 0.075, "too far from the marker to be held"
        # The spheres are wider than the cup whose rim they approximate.
        assert hand_to_front(where, 0.0, stance, posture) > (-0.02 if opening else 0.005)


def test_an_arm_that_penetrates_the_door_is_not_clear_of_it(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, FRIDGE)
    scene = scene_of(simulator, before_handle(FRIDGE, 1.1))
    approach = plan_approach(scene, where, 0.0, opening=True)
    assert approach is not None
    assert clear_of_link(scene, where, 0.0, approach.stance, approach.posture)
    inside = ahead(approach.stance, 0.3)
    assert not clear_of_link(scene, where, 0.0, inside, approach.posture)


# -- the approach to the handle -------------------------------------------------------------------


@pytest.mark.parametrize("marker", [DRAWER, FRIDGE])
def test_the_planned_approach_ends_with_the_cup_on_the_face(
    simulator: Simulator, marker: str
) -> None:
    where = handle(LAYOUT_A, marker)
    scene = scene_of(simulator, before_handle(marker, 1.1))
    approach = plan_approach(scene, where, 0.0, opening=True)
    assert approach is not None
    tip, turn = cup_pose(approach.posture)
    face = point_to_base(approach.stance, where.point(0.0))
    into = to_base(approach.stance, -where.normal(0.0))
    assert abs((tip - face) @ into) < 0.04
    marked = point_to_base(approach.stance, where.pose(0.0)[0] + where.rotation @ where.link.marker)
    assert np.linalg.norm(tip - marked) < 0.15, "too far from the marker to be held"
    assert turn[:, 0] @ into > 0.4, "the cup does not face it"
    # The last part is driven straight, and before it the arm is free of obstacles.
    stretch = float(np.linalg.norm(approach.stance[:2] - approach.first[:2]))
    np.testing.assert_allclose(ahead(approach.first, stretch), approach.stance, atol=1e-9)
    assert scene.checker(approach.first).free(approach.posture, 0.0)
    assert scene.footprint(scene.arm).margin(*approach.first) > 0.0


def test_an_arm_in_front_of_the_face_keeps_its_posture(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, FRIDGE)
    scene = scene_of(simulator, before_handle(FRIDGE, 1.1))
    approach = plan_approach(scene, where, 0.0, opening=True)
    assert approach is not None
    for back in (0.0, 0.05):
        there = dataclasses.replace(scene, base=ahead(approach.stance, -back), arm=approach.posture)
        again = plan_approach(there, where, 0.0, opening=True)
        assert again is not None and again.legs is None
        np.testing.assert_array_equal(again.posture, approach.posture)


def test_without_a_free_stance_there_is_no_approach(simulator: Simulator) -> None:
    where = handle(LAYOUT_A, DRAWER)
    scene = scene_of(simulator, before_handle(DRAWER, 0.95))
    # A wall stands in front of the drawer, at the place of the arm.
    centre = where.point(0.0) + 0.35 * where.normal(0.0)
    walled = with_a_body(scene, np.array([centre[0], centre[1], 0.8]), (0.1, 1.5, 0.8))
    assert abs(where.normal(0.0)[0]) == pytest.approx(1.0), "the wall has to stand across"
    assert plan_approach(walled, where, 0.0, opening=True) is None
