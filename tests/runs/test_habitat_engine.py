"""The engine `habitat` with a stand-in of habitat-lab: frames, faults and missing parts."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kinematic_home import make_episode
from rich.console import Console
from stand_in_habitat import data, install

from eval.running import skill_evaluator
from eval.settings import SkillSettings
from skills.core.interface import SkillGoal
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.starts.start import Start
from tpsrl import config
from tpsrl.errors import RunError, UserError
from tpsrl.render.cameras import Sphere
from tpsrl.rl.envs.delay import DelayedVecEnvFactory
from tpsrl.rl.envs.pool import step_all
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.vec_env import VecEnvFactory
from tpsrl.sim.base import HomeLost
from tpsrl.sim.habitat import worker
from tpsrl.sim.habitat.pictures import draw_markers
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.sim.habitat.simulator import HabitatSimulator
from tpsrl.world import action as act
from tpsrl.world.fetch import REST_ARM
from tpsrl.world.state import JOINTS


def settings(folder: Path, fault: str = "", **changes: object) -> HabitatSettings:
    given = {"python": install(folder, fault), "data": data(folder / "files"), "depth": 16}
    return HabitatSettings(**{**given, **changes})  # type: ignore[arg-type]


@pytest.fixture
def simulator(tmp_path: Path) -> HabitatSimulator:
    return HabitatSimulator(2, slots=12, settings=settings(tmp_path))


def action(**parts: float) -> np.ndarray:
    made = np.zeros(act.SIZE)
    made[act.GRIP] = -1.0
    for name, value in parts.items():
        made[int(name[1:])] = value
    return made


def test_states_are_in_our_frame_and_in_the_order_of_the_episode(
    simulator: HabitatSimulator,
) -> None:
    episode = make_episode(3, 2, robot_start=(1.0, -2.0, 0.5))
    mixed = [episode.objects[0], *episode.objects[1:]]
    mixed[0] = type(mixed[0])("024_bowl", (3.0, 1.0, 0.7), mixed[0].quat, "table_1")
    episode = make_episode(3, 2, robot_start=(1.0, -2.0, 0.5), objects=tuple(mixed))
    simulator.reset([0, 1], [episode, make_episode(1, 1)])
    world = simulator.state([0])
    assert world.base[0] == pytest.approx([1.0, -2.0, 0.5])
    assert world.arm[0] == pytest.approx(REST_ARM)
    assert world.object_pos.shape == (1, 12, 3)
    for row, placed in enumerate(episode.objects):
        assert world.object_pos[0, row] == pytest.approx(placed.pos)
        turn = world.object_quat[0, row] * np.sign(world.object_quat[0, row, 0])
        assert turn == pytest.approx(placed.quat, abs=1e-6)
    assert np.isnan(world.object_pos[0, 3:]).all()
    cos, sin = np.cos(0.5), np.sin(0.5)
    assert world.ee_pos[0] == pytest.approx([1.0 + 0.5 * cos, -2.0 + 0.5 * sin, 1.0])
    order = [sorted(JOINTS).index(name) for name in JOINTS]
    assert world.joints[0] == pytest.approx([0.1 * n for n in order])
    assert world.marker_pos[0, 0] == pytest.approx([order[0], -3.0, 2.0])
    simulator.close()


def test_each_home_steps_alone_by_its_action(simulator: HabitatSimulator) -> None:
    simulator.reset([0, 1], [make_episode(1, 1), make_episode(1, 1)])
    simulator.step([1], action(_0=1.0, _8=0.5, _9=-1.0)[None])
    still, moved = simulator.state([0]), simulator.state([1])
    assert still.step[0] == 0 and moved.step[0] == 1
    assert moved.arm[0, 0] == pytest.approx(REST_ARM[0] + act.ARM_DELTA_RAD)
    yaw = -act.STEP_RAD
    way = 0.5 * act.STEP_M * np.array([np.cos(yaw), np.sin(yaw)])
    assert moved.base[0] == pytest.approx([*way, yaw])
    assert moved.base_velocity[0] == pytest.approx(30.0 * moved.base[0])
    # The stand-in's force grows by 100 N a step, which counts as a rise.
    assert (moved.force[0], moved.force_total[0]) == (100.0, 100.0)
    seen = simulator.depth([1, 0], 8, 8)
    assert seen.shape == (2, 8, 8) and seen[0, :, 0] == pytest.approx((1 + 2 * np.arange(8)) / 16)
    with pytest.raises(
        UserError, match=r"habitat.depth: 16 pixels are not a multiple of the requested 6 x 6"
    ):
        simulator.depth([0], 6, 6)
    for refused in (simulator.snapshot, simulator.shapes):
        with pytest.raises(UserError, match="engine: 'habitat' has no"):
            refused(0)
    with pytest.raises(UserError, match=r"habitat.colour: false, .*need textures; use true"):
        simulator.render(0)
    simulator.close()


def test_a_held_object_hangs_from_the_cup_and_is_released(simulator: HabitatSimulator) -> None:
    simulator.reset([0], [make_episode(2, 1, held=1)])
    world = simulator.state([0])
    assert world.held[0] == 1
    assert world.object_pos[0, 1, :2] == pytest.approx(world.ee_pos[0, :2])
    assert world.object_pos[0, 1, 2] < world.ee_pos[0, 2]
    simulator.step([0], action()[None])
    assert simulator.state([0]).held[0] == -1
    simulator.close()


def test_a_crash_loses_one_home_which_the_next_reset_restores(tmp_path: Path) -> None:
    simulator = HabitatSimulator(2, slots=12, settings=settings(tmp_path, "crash"))
    simulator.reset([0, 1], [make_episode(1, 1), make_episode(1, 1)])
    simulator.step([0], action()[None])
    with pytest.raises(HomeLost, match=r"episode test/0: .*signal 11; .*Assertion btFoo failed"):
        simulator.step([0, 1], np.stack([action(), action()]))
    assert simulator.state([1]).step[0] == 1
    with pytest.raises(UserError, match="home 0: has not been reset"):
        simulator.state([0])
    simulator.reset([0], [make_episode(1, 1)])
    assert simulator.state([0]).step[0] == 0
    simulator.close()


def evaluation(
    folder: Path, fault: str, monkeypatch: pytest.MonkeyPatch, *overrides: str
) -> SkillSettings:
    """Returns settings for four starts of Pick, in a stand-in with a fault."""
    starts = [Start(make_episode(1, 1, id=f"test/{n}"), SkillGoal(0)) for n in range(4)]
    monkeypatch.setattr(skill_evaluator, "obtain", lambda settings: starts)
    made = settings(folder, fault)
    habitat = f"habitat.python={made.python}", f"habitat.data={made.data}", "habitat.depth=16"
    short = "agent=random", "protocol.alone.pick.steps=3", "processes=1", f"out={folder / 'out'}"
    return config.load(
        SkillSettings, config.parse(["skill=pick", "engine=habitat", *habitat, *short, *overrides])
    )


def test_an_evaluation_continues_after_a_crash_and_reports_the_lost_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = evaluation(tmp_path, "crash_once", monkeypatch)
    report = skill_evaluator.evaluate_skill(options, Console(quiet=True))
    assert report.num_episodes == 3 and report.lost
    (lost,) = report.lost
    assert lost.episode == "test/0"
    assert lost.cause.startswith("the Habitat process was ended by signal 11; its last lines: ")
    assert "Assertion btFoo failed" in lost.cause


def test_an_evaluation_ends_with_the_cause_if_every_episode_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = evaluation(tmp_path, "crash", monkeypatch)
    with pytest.raises(RunError, match=r"^3 episodes in a row were lost; the last: .*signal 11"):
        skill_evaluator.evaluate_skill(options, Console(quiet=True))
    assert not (tmp_path / "out" / "report.json").exists()


def test_an_object_missing_in_the_data_is_reported_by_file(simulator: HabitatSimulator) -> None:
    message = "habitat.data: episode test/0: .*/003_cracker_box.object_config.json is missing"
    (Path(simulator.settings.data) / worker.OBJECTS / "003_cracker_box.object_config.json").unlink()
    with pytest.raises(UserError, match=message):
        simulator.reset([0], [make_episode(1, 1)])
    simulator.close()


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    simulator = HabitatSimulator(1, 12, settings=settings(tmp_path, "hang", timeout_s=5.0))
    simulator.reset([0], [make_episode(1, 1)])
    simulator.step([0], action()[None])
    with pytest.raises(
        HomeLost, match=r"did not respond for 5 s and was killed.* in internal_step"
    ):
        simulator.step([0], action()[None])
    simulator.close()


@pytest.mark.parametrize("delay", [False, True])
def test_homes_without_snapshots_are_reset_when_restored(tmp_path: Path, delay: bool) -> None:
    starts = [Start(make_episode(1, 1), SkillGoal(0)) for _ in range(2)]
    options = EnvOptions.of("pick", starts=starts, engine="habitat", habitat=settings(tmp_path))
    factory: VecEnvFactory = TrainingVecEnvFactory(options, seed=5)
    pools = [SerialEnvPool(DelayedVecEnvFactory(factory) if delay else factory, 2) for _ in "ab"]
    pools[0].reset()
    first = pools[0].observation["state"].copy()
    for _ in range(3):
        step_all(pools[0], np.full((2, act.SIZE), 0.5))
    assert not np.allclose(pools[0].observation["state"], first)
    pools[0].send(np.array([1]), np.zeros((1, act.SIZE)))  # its step is in progress
    arrays, note = pools[0].snapshot()
    pools[1].restore(arrays, json.loads(json.dumps(note)))
    (lost,) = pools[1].lost()
    assert lost.envs.tolist() == [0, 1] and lost.cause.startswith("the engine cannot restore it")
    assert pools[1].idle().tolist() == [0, 1] and pools[1].lost() == []
    np.testing.assert_allclose(pools[1].observation["state"], first, atol=1e-6)
    step_all(pools[1], np.zeros((2, act.SIZE)))
    for pool in pools:
        pool.close()


def test_a_marker_is_drawn_at_its_place_in_the_image() -> None:
    picture, pose = np.zeros((40, 80, 3), np.uint8), np.eye(4)
    pose[:3, 3] = 1.0, 2.0, 3.0  # looks along -z of Habitat, which is +y of ours
    ahead = Sphere((1.0 + 0.5, -3.0 + 2.0, 2.0 + 0.25), 0.1, (0.0, 1.0, 0.0))
    behind = Sphere((1.0, -3.0 - 2.0, 2.0), 0.5, (1.0, 0.0, 0.0))
    draw_markers(picture, pose, 90.0, [ahead, behind])
    rows, columns = np.nonzero(picture[..., 1])
    # At 90 degrees, an offset of 40 pixels equals the distance ahead, here 2 m.
    assert (rows.mean() + 0.5, columns.mean() + 0.5) == pytest.approx((20 - 5, 40 + 10))
    assert picture[..., 0].max() == 0 and len(rows) == pytest.approx(np.pi * 2.0**2, abs=2)


def test_errors_of_habitat_are_reported_with_their_type(tmp_path: Path) -> None:
    simulator = HabitatSimulator(1, 12, settings=settings(tmp_path, "raise"))
    simulator.reset([0], [make_episode(1, 1)])
    simulator.step([0], action()[None])
    with pytest.raises(RunError, match="Habitat: ValueError: Created bad constraint"):
        simulator.step([0], action()[None])
    simulator.close()


@pytest.mark.parametrize("case", ["import", "program", "data", "no habitat", "protocol"])
def test_missing_parts_are_reported_with_a_remedy(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = settings(tmp_path, case if case == "import" else "")
    expected = {
        "import": "habitat_sim cannot be imported .*libEGL.so.1.*conda install",
        "program": "habitat.python: '/nowhere/python' is not a program",
        "data": "habitat.data: .*hab_suction.urdf is missing; download 'hab_fetch'",
        "no habitat": "habitat_sim cannot be imported .*No module named 'habitat_sim'",
        "protocol": "protocol 99, this worker has",
    }[case]
    if case == "program":
        options = HabitatSettings("/nowhere/python")
    if case == "data":
        (Path(options.data) / "data/robots/hab_fetch/robots/hab_suction.urdf").unlink()
    if case == "no habitat":
        options = HabitatSettings(sys.executable)
    if case == "protocol":
        monkeypatch.setattr(worker, "PROTOCOL", 99)
    with pytest.raises(UserError, match=expected) as error:
        HabitatSimulator(1, settings=options)
    assert "\n" not in str(error.value)


def test_the_worker_is_one_file_of_python_3_9_that_needs_only_numpy_and_habitat() -> None:
    tree = ast.parse(Path(worker.__file__).read_text(), feature_version=(3, 9))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).split(".")[0])
    allowed = {"numpy", "habitat", "habitat_sim", "magnum"}  # magnum comes with habitat_sim
    assert names - sys.stdlib_module_names <= allowed


def test_tpsrl_does_not_import_habitat() -> None:
    code = (
        "import sys, tpsrl, tpsrl.api, tpsrl.sim; "
        "print(any(name.partition('.')[0].startswith('habitat') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "False"
