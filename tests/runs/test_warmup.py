import subprocess
import sys

import numpy as np

import tpsrl.sim
from eval.running.warmup import lead_the_cup_back, one_object_episode, plan_around_a_pole


def test_the_warmup_episode_is_valid_and_its_object_stays_in_place():
    episode = one_object_episode()
    simulator = tpsrl.sim.make(slots=12)
    simulator.reset([0], [episode])
    idle = np.zeros((1, 11))
    idle[0, 7] = -1.0
    for _ in range(15):
        simulator.step([0], idle)
    moved = simulator.state([0]).object_pos[0, 0] - episode.objects[0].pos
    assert np.abs(moved).max() < 0.01


def test_the_warmup_path_leads_around_the_pole():
    path = plan_around_a_pole()
    assert path is not None and len(path) > 2


def test_the_warmup_finds_a_way_back_for_the_cup():
    (way,) = lead_the_cup_back()
    assert len(way) > 3


# Prints which compiled functions the jobs have not called, or not for all memory layouts.
COMPILED = """
from eval.running.warmup import carry_one_object, open_a_drawer
from tpsrl.motion import tracking
from tpsrl.motion.arm import ik_table, rest_poses, rrt
from tpsrl.motion.base import arc_smoothing, lattice, shortcutting, stances, tip_tracking
from tpsrl.motion.suction import contacts as suction_contacts, placements
from tpsrl.sim import contacts
from tpsrl.world import floor, footprint, geodesic, kinematics, placement, slabs
assert carry_one_object(), "the object did not get to its goal"
assert open_a_drawer(), "a skill failed"
for function in (
    contacts.largest_force, contacts.touched, floor._draw_distance, floor.clearance_gradient,
    footprint.pose_margin, geodesic._spread, geodesic._snap, geodesic._distances, geodesic._path,
    geodesic.field_distance, kinematics.cup_pose, kinematics.inverse, rrt._rrt_connect,
    lattice.astar, tip_tracking._search, placement.gap, ik_table.estimates,
    ik_table.reach_and_touch, placements._rows, rest_poses._covered, arc_smoothing.rounded,
    slabs._draw_outside,
    stances._around, shortcutting.straightened, suction_contacts.touches, tracking._along,
):
    if not function.signatures:
        print(function.__name__, "is not compiled")
for function in (contacts.largest_force, contacts.touched):
    # Numbers of one contact lie side by side in memory, those of several do not.
    if len({signature[0].layout for signature in function.signatures}) < 2:
        print(function.__name__, "is compiled for", function.signatures)
"""


def test_the_jobs_succeed_and_compile_the_functions_that_commands_need():
    # Runs in a separate process, because other tests call these functions as well.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
