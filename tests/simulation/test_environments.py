import copy
import dataclasses
import pickle
import re
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from homes import FRIDGE, IDLE, LAYOUT_A, LAYOUT_B, box_in_front, episode, roomiest

import skills.gym  # noqa: F401  (registers the skills with gymnasium)
from skills.core import sensors, task
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.core.state import Goals
from skills.envs import environment, episodes
from skills.envs.batch import SkillBatch
from skills.envs.environment import SkillEnv
from skills.envs.map_sensors import MapSensors
from skills.envs.options import EnvOptions
from skills.envs.vector import SkillVectorEnv
from skills.navigate.task import NavigateThresholds
from skills.policies import agents
from skills.registry import get, names, planned, registered
from skills.starts.dataset import BASE_EPISODES, NoPoseError
from skills.starts.recorded import load_starts, save_starts
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.training import loading
from tpsrl.training.task import env_options
from tpsrl.world import action as act
from tpsrl.world.handles import handle
from tpsrl.world.slots import CAPACITIES
from tpsrl.world.state import JOINTS, WorldState

GOALS = {
    "navigate": SkillGoal(),
    "pick": SkillGoal(0),
    "place": SkillGoal(0),
    "open_fridge": SkillGoal(marker="fridge_push_point"),
    "close_fridge": SkillGoal(marker="fridge_push_point"),
    "open_drawer": SkillGoal(marker="cab_push_point_5"),
    "close_drawer": SkillGoal(marker="cab_push_point_5"),
}


def start(skill: str, layout: str = LAYOUT_A, yaw: float = 0.0) -> Start:
    """Returns a start in the open, with a box in front; goals are 1 m to the left of the robot."""
    record = box_in_front(layout)
    x, y = roomiest(layout)
    goal = GOALS[skill]
    record = dataclasses.replace(
        record,
        robot_start=(x, y, yaw),
        held=0 if skill == "place" else -1,
        articulation={goal.marker: 0.4} if skill.startswith("close") else {},
    )
    if skill in ("navigate", "place"):
        goal = dataclasses.replace(goal, position=(x, y + 1.0, 0.8))
    return Start(record, goal)


def starts(skill: str) -> list[Start]:
    return [start(skill, layout, yaw) for layout in (LAYOUT_A, LAYOUT_B) for yaw in (0.0, 1.0, 2.0)]


@pytest.fixture(scope="module")
def one() -> Simulator:
    return MujocoSimulator(1, slots=12)


@pytest.fixture(scope="module")
def three() -> Simulator:
    return MujocoSimulator(3, slots=12)


def env_of(skill: str, simulator: Simulator, **options: object) -> SkillEnv:
    return SkillEnv(skill, simulator=simulator, **{"starts": starts(skill), **options})


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def some_actions(count: int, homes: int = 1) -> np.ndarray:
    rng = np.random.default_rng(5)
    actions = rng.uniform(-1, 1, (count, homes, act.SIZE)).astype(np.float32)
    actions[:, :, act.GRIP] = 1.0
    actions[:, :, act.STOP] = -1.0
    return actions


# -- gymnasium ---------------------------------------------------------------------------------


@pytest.mark.parametrize("skill", planned())
def test_environments_pass_gymnasiums_checks_without_warnings(skill: str):
    env = gymnasium.make(get(skill).env_id, starts=starts(skill), num_objects=12, depth=(8, 8))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    assert [str(w.message) for w in seen] == []
    env.close()


def test_environments_with_rgb_rendering_pass_gymnasiums_checks(one: Simulator):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(env_of("pick", one, render_mode="rgb_array"))
    # Gymnasium warns about every environment that was made without a spec.
    assert [str(w.message) for w in seen if "spec" not in str(w.message)] == []


@pytest.mark.parametrize("skill", names())
def test_random_actions_keep_every_observation_in_its_space(one: Simulator, skill: str):
    every = PolicyInputs.of(skill).complete().sensors
    options = EnvOptions.of(skill, depth=(4, 4), critic=True, sensors=every)
    batch = SkillBatch(options, one)
    space, rng = environment.observation_space(options), np.random.default_rng(0)
    assert all(part.is_bounded() for part in space.spaces.values())
    own = get(skill).start_states().num_objects
    source = StartSource(skill, num_objects=min(own, 12), num_episodes=2)
    for _ in range(4):
        shown = batch.reset([0], [source.draw(rng)[1]])
        held = rng.uniform(-1, 1, (1, act.SIZE))
        for _ in range(100):
            assert space.contains({name: values[0] for name, values in shown.items()})
            # Actions are held for several steps so that the robot moves far.
            held = np.where(rng.random((1, act.SIZE)) < 0.1, rng.uniform(-1, 1, held.shape), held)
            shown = batch.step([0], held).observation


def test_observations_beyond_the_bounds_are_clipped(one: Simulator):
    env = env_of("pick", one)
    shown = {"state": np.full((1, 24), 1e6, np.float32), "depth": np.zeros((1, 2, 2), np.float32)}
    environment.fitted(
        shown,
        spaces.Dict(
            {"state": env.observation_space["state"], "depth": spaces.Box(0.0, 1.0, (2, 2))}
        ),
    )
    assert env.observation_space.contains({"state": shown["state"][0]})
    assert shown["state"][0].max() == sensors.HOME_M


def test_custom_sensors_are_unbounded_unless_they_declare_bounds():
    def read(seen):
        return seen.measures.ee

    class Own(type(get("pick").definition)):
        own_sensors = {  # noqa: RUF012
            "free": sensors.Sensor(2, read),
            "held": sensors.Sensor(2, read, low=0.0, high=(1.0, 2.0)),
        }

    with registered(dataclasses.replace(get("pick"), name="own", definition=Own(), actions=())):
        low, high = PolicyInputs.of("own", ("free", "held")).bounds()
    assert low.tolist() == [-np.inf, -np.inf, 0.0, 0.0]
    assert high.tolist() == [np.inf, np.inf, 1.0, 2.0]


def alike(a: object, b: object) -> bool:
    """Returns whether two infos agree on the environments that they cover."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return False
        about = {name: a.get(f"_{name}", slice(None)) for name in a}
        return all(
            alike(a[name], b[name])
            if isinstance(a[name], dict)
            else np.array_equal(a[name][about[name]], b[name][about[name]], equal_nan=True)
            for name in a
        )
    return False


def form_of(info: dict[str, Any]) -> dict[str, Any]:
    """Returns the names and types of an info, which must be the same at every step."""
    return {
        name: form_of(value) if isinstance(value, dict) else getattr(value, "dtype", type(value))
        for name, value in info.items()
    }


@pytest.mark.parametrize("skill", ["pick", "navigate", "explore"])
def test_infos_have_the_same_keys_and_types_after_resets_and_steps(one: Simulator, skill: str):
    given = starts("navigate" if skill == "explore" else skill)
    env = SkillEnv(skill, simulator=one, starts=given, horizon=2)
    idle = np.zeros(act.SIZE, dtype=np.float32)
    infos = [env.reset(seed=0)[1], env.step(idle)[-1], env.step(idle)[-1], env.reset()[1]]
    assert all(form_of(info) == form_of(infos[0]) for info in infos)
    kinds = {kind for part in ("results", "path") for kind in kinds_of(infos[0].get(part, {}))}
    assert kinds_of(infos[0]) | kinds <= {int, float, bool}
    assert env.units.keys() == infos[0]["results"].keys()
    for name, margin in env.batch.results(0, stop=False).items():
        if name != "success":
            found = {"holds": margin.holds, "margin": margin.margin}
            assert infos[3]["results"][name] == pytest.approx(found, nan_ok=True)
            assert env.units[name] == margin.unit


def kinds_of(form: dict[str, Any]) -> set[Any]:
    found: set[Any] = set()
    for value in form.values():
        found |= kinds_of(value) if isinstance(value, dict) else {type(value)}
    return found


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_a_vector_autoresets_like_gymnasiums_own_in_every_mode(three: Simulator, mode: str):
    options = {"starts": starts("navigate"), "horizon": 3}
    own = SkillVectorEnv("navigate", simulator=three, autoreset_mode=mode, **options)
    theirs = gymnasium.vector.SyncVectorEnv(
        [lambda: SkillEnv("navigate", simulator=MujocoSimulator(1, slots=12), **options)] * 3,
        autoreset_mode=mode,
    )
    assert own.autoreset_mode is own.metadata["autoreset_mode"] is theirs.autoreset_mode
    assert SkillVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    shown = [env.reset(seed=3)[0] for env in (own, theirs)]
    ended = 0
    for number, actions in enumerate(some_actions(7, 3)):
        assert same(*shown)
        if number == 1:
            actions[1, act.STOP] = 1.0
        (mine, *rest, infos), (other, *expected, others) = (e.step(actions) for e in (own, theirs))
        seen, wanted = infos.pop("final_obs", None), others.pop("final_obs", None)
        assert alike(infos, others)
        assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(rest, expected, strict=True))
        over = rest[1] | rest[2]
        ended += over.sum()
        if mode == "SameStep":
            assert (seen is not None) == over.any()
            for env in np.flatnonzero(over):
                assert same(seen[env], wanted[env])
        elif over.any():
            with pytest.raises(
                UserError, match=r"the episode of environment \d has ended; reset it"
            ):
                own.step(actions)
            mine, other = (e.reset(options={"reset_mask": over})[0] for e in (own, theirs))
        shown = [mine, other]
    assert ended > 3
    theirs.close()


def test_infos_of_a_vector_equal_those_of_gymnasiums_vector_of_single_ones(three: Simulator):
    options = {"starts": starts("navigate"), "horizon": 4}
    own = SkillVectorEnv("navigate", simulator=three, **options)

    def single() -> SkillEnv:
        return SkillEnv("navigate", simulator=MujocoSimulator(1, slots=12), **options)

    theirs = gymnasium.vector.SyncVectorEnv([single] * 3)
    assert own.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    assert own.observation_space == theirs.observation_space
    assert own.action_space == theirs.action_space
    infos = [env.reset(seed=3)[1] for env in (own, theirs)]
    forms = []
    for number, actions in enumerate(some_actions(9, 3)):
        assert alike(*infos), infos
        forms.append(form_of(infos[0]))
        if number == 1:
            actions[1, act.STOP] = 1.0  # ends the episode of one environment first
        infos = [env.step(actions)[-1] for env in (own, theirs)]
    assert all(form == forms[0] for form in forms)
    theirs.close()


def test_a_partial_reset_reports_the_starts_of_its_mask(three: Simulator):
    env = SkillVectorEnv("pick", simulator=three, starts=starts("pick"))
    env.reset(seed=0)
    mask = np.array([False, True, False])
    _, infos = env.reset(options={"reset_mask": mask, "start": 3})
    assert infos["start"][1] == 3 and infos["_start"].tolist() == mask.tolist()


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_wrappers_of_vectors_count_episodes(mode: str):
    options = {"starts": starts("pick"), "num_objects": 12, "horizon": 3}
    made = gymnasium.make_vec("tpsrl/Pick-v0", 2, vectorization_mode=mode, **options)
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(made)
    env.reset(seed=0)
    lengths = []
    for _ in range(8):
        *_, infos = env.step(np.zeros((2, act.SIZE), np.float32))
        lengths += infos["episode"]["l"][infos["_episode"]].tolist() if "episode" in infos else []
    assert lengths == [3] * 4
    env.close()


def test_episodes_are_filmed_by_gymnasiums_wrappers(one: Simulator, three: Simulator, tmp_path):
    pytest.importorskip("moviepy", reason="RecordVideo needs the extra 'record'")
    options = {"render_mode": "rgb_array", "starts": starts("pick"), "horizon": 2}
    single, many = (
        SkillEnv("pick", simulator=one, **options),
        SkillVectorEnv("pick", simulator=three, **options),
    )
    wrappers = gymnasium.wrappers
    for env, kind, folder in (
        (single, wrappers.RecordVideo, "one"),
        (many, wrappers.vector.RecordVideo, "many"),
    ):
        filmed = kind(env, tmp_path / folder, episode_trigger=lambda number: number == 0)
        filmed.reset(seed=0)
        for _ in range(2):
            filmed.step(np.zeros(filmed.action_space.shape, np.float32))
        if hasattr(filmed, "stop_recording") and filmed.recording:
            filmed.stop_recording()
        (film,) = (tmp_path / folder).glob("*.mp4")
        assert film.stat().st_size > 0


def test_all_skills_are_registered_with_gymnasium():
    for skill in names():
        assert gymnasium.spec(get(skill).env_id).kwargs == {"skill": skill}
    assert gymnasium.spec("tpsrl/OpenDrawer-v0").kwargs == {"skill": "open_drawer"}
    assert gymnasium.spec("tpsrl/PointNav-v0").kwargs == {"skill": "pointnav"}


def test_make_vec_gives_a_vector_on_one_simulator():
    env = gymnasium.make_vec(
        "tpsrl/Pick-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        starts=starts("pick"),
        num_objects=12,
        depth=(4, 6),
    )
    shown, _ = env.reset(seed=0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert shown["depth"].shape == (2, 4, 6) and shown["state"].shape == (2, 14)
    assert env.observation_space.contains(shown)
    shown, reward, *_ = env.step(env.action_space.sample())
    assert env.observation_space.contains(shown) and reward.shape == (2,)
    env.close()


def test_render_gives_an_image_only_with_a_render_mode(one: Simulator):
    env = env_of("pick", one, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (360, 480, 3)
    assert env_of("pick", one).render() is None


# -- determinism, vectors, subsets -------------------------------------------------------------


def copies(env: Any) -> list[Any]:
    return [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]


@pytest.mark.parametrize("skill", ["Pick", "Navigate", "OpenFridge", "PointNav", "Explore"])
def test_a_copy_continues_like_the_original_and_leaves_it_unchanged(skill: str):
    options = {"num_objects": 4, "num_episodes": 1, "horizon": 9, "depth": (4, 6)}
    env = gymnasium.make(f"tpsrl/{skill}-v0", height_map=True, **options)

    def play(env: Any, actions: np.ndarray) -> list[Any]:
        outputs = []
        for action in actions:
            shown, reward, terminated, truncated, info = env.step(action)
            outputs += [*shown.values(), reward, repr(info)]
            if terminated or truncated:
                shown, info = env.reset()  # by its random generator
                outputs += [*shown.values(), repr(info)]
        return outputs

    env.reset(seed=1)
    first, second = some_actions(5)[:, 0], some_actions(7)[::-1, 0]
    play(env, first)
    made = copies(env)
    outputs = [play(one, second) for one in (*made, env)]
    for other in outputs[:2]:
        assert all(np.array_equal(a, b) for a, b in zip(other, outputs[2], strict=True))
    for one in (*made, env):
        one.close()


def test_a_copy_of_a_vector_continues_like_the_original():
    options = {"starts": starts("pick"), "num_objects": 12, "horizon": 4}
    env = SkillVectorEnv("pick", num_envs=2, **options)
    env.reset(seed=1)
    first, second = some_actions(2, 2), some_actions(6, 2)[::-1]
    for action in first:
        env.step(action)
    made = copies(env)
    for action in second:
        (shown, reward, *over, infos), *others = [one.step(action) for one in (env, *made)]
        for seen, other_reward, *other_over, other_infos in others:
            assert same(shown, seen) and np.array_equal(reward, other_reward)
            assert np.array_equal(over, other_over) and alike(infos, other_infos)


def test_an_environment_can_be_copied_before_its_first_reset():
    env = SkillEnv("pick", starts=starts("pick"), num_objects=12)
    shown, *others = [one.reset(seed=3)[0] for one in (env, *copies(env))]
    assert all(same(shown, other) for other in others)


def test_a_refused_copy_names_snapshot_and_restore(one: Simulator):
    env = env_of("pick", one)
    closed = SkillEnv("pick", starts=starts("pick"), num_objects=12)
    closed.close()
    for wrong in (env, closed):
        for way in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"snapshot\(\) here and restore\(\) in"):
                way(wrong)


def test_environments_of_a_vector_are_restored_from_their_snapshots(three: Simulator):
    env = SkillVectorEnv("pick", simulator=three, starts=starts("pick"), horizon=4)
    env.reset(seed=1)
    actions = some_actions(3, 3)
    env.step(actions[0])
    frozen = env.snapshot(1)
    later = env.step(actions[1])[0]["state"][1]
    env.restore(2, frozen)
    actions[2, 2] = actions[1, 1]
    assert np.array_equal(env.step(actions[2])[0]["state"][2], later)
    with pytest.raises(UserError, match="env_id: must be between 0 and 2, got 3"):
        env.snapshot(3)


def test_the_same_seed_gives_the_same_episodes(one: Simulator):
    env = env_of("pick", one)

    def play(seed: int) -> list[object]:
        shown, info = env.reset(seed=seed)
        seen: list[object] = [shown["state"], info["start"]]
        for action in some_actions(5)[:, 0]:
            shown, reward, *_ = env.step(action)
            seen += [shown["state"], reward]
        return [*seen, env.reset()[1]["start"]]

    first, second = play(1), play(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert len({env.reset(seed=seed)[1]["start"] for seed in range(10)}) > 1


@pytest.mark.parametrize("skill", ["pick", "open_drawer"])
def test_environments_of_a_vector_behave_like_single_ones(
    one: Simulator, three: Simulator, skill: str
):
    options = {"starts": starts(skill), "horizon": 6, "depth": (8, 8)}
    vector = SkillVectorEnv(skill, simulator=three, **options)
    actions = some_actions(15, 3)
    shown, _ = vector.reset(seed=10)
    together = [(shown, None)]
    for action in actions:
        shown, reward, terminated, truncated, _ = vector.step(action)
        together.append((shown, (reward, terminated, truncated)))
    single = SkillEnv(skill, simulator=one, **options)
    for home in range(3):
        alone, _ = single.reset(seed=10 + home)
        over = False
        for number, (shown, outcome) in enumerate(together):
            if number:
                expected = (0.0, False, False)
                if over:
                    alone, _ = single.reset()
                else:
                    alone, *expected, _ = single.step(actions[number - 1, home])
                assert tuple(values[home] for values in outcome) == tuple(expected)
                over = expected[1] or expected[2]
            assert same(alone, {name: values[home] for name, values in shown.items()})


def test_a_vector_reports_failed_conditions_at_the_end_of_an_episode(three: Simulator):
    env = SkillVectorEnv("pick", simulator=three, starts=starts("pick"), horizon=2)
    _, begun = env.reset(seed=0)
    idle = np.zeros((3, act.SIZE), dtype=np.float32)
    *_, infos = env.step(idle)
    assert infos["results"]["holding"]["margin"].tolist() == [-1.0] * 3
    assert infos["_success"].all() and infos["start"].tolist() == begun["start"].tolist()
    assert infos["reward_terms"]["slack"].tolist() == [-0.005] * 3
    *_, truncated, infos = env.step(idle)
    assert truncated.all() and infos["_results"].all()
    assert not infos["results"]["holding"]["holds"].any()
    *_, truncated, infos = env.step(idle)
    assert (
        not truncated.any() and infos["_start"].all() and not infos["reward_terms"]["slack"].any()
    )


def test_a_vector_resets_only_the_environments_of_a_mask(three: Simulator):
    env = SkillVectorEnv("pick", simulator=three, starts=starts("pick"))
    env.reset(seed=0)
    before, *_ = env.step(some_actions(1, 3)[0])
    mask = np.array([False, True, False])
    after, _ = env.reset(options={"reset_mask": mask, "start": 3})
    for home in range(3):
        assert np.array_equal(before["state"][home], after["state"][home]) == (not mask[home])


def test_stepping_a_subset_leaves_the_other_environments_unchanged(three: Simulator):
    batch = SkillBatch(EnvOptions.of("pick"), three)
    batch.reset([0, 1, 2], starts("pick")[:3])
    actions = some_actions(4, 3)
    batch.step([2, 0], actions[0, [2, 0]])
    batch.step([2], actions[1, [2]])
    assert [batch.steps(env) for env in range(3)] == [1, 0, 2]
    batch.reset([0, 1, 2], starts("pick")[:3])
    batch.step([0, 1, 2], actions[0])
    both = batch.step([1, 2], actions[1, 1:])
    batch.reset([0, 1, 2], starts("pick")[:3])
    batch.step([2, 1, 0], actions[0, ::-1])
    alone = batch.step([2], actions[1, 2:])
    assert np.array_equal(both.observation["state"][1], alone.observation["state"][0])
    assert both.outcome.reward[1] == alone.outcome.reward[0]


def test_a_snapshot_restores_home_and_task_in_another_environment(three: Simulator):
    batch = SkillBatch(EnvOptions.of("place"), three)
    batch.reset([0, 1], starts("place")[:2])
    actions = some_actions(8)
    for action in actions[:4]:
        batch.step([0], action)
    snapshot = batch.snapshot(0)

    def future(env: int) -> list[np.ndarray]:
        seen = []
        for action in actions[4:]:
            done = batch.step([env], action)
            seen += [done.observation["state"], done.outcome.reward]
        return seen

    first = future(0)
    shown = batch.restore(2, snapshot)
    assert batch.steps(2) == 4 and batch.goal(2) == batch.goal(0)
    assert shown["state"].shape == (1, 24)
    assert all(np.array_equal(a, b) for a, b in zip(first, future(2), strict=True))


# -- sensors based on a map -----------------------------------------------------------------------

AJAR_RAD = 1.2
PAST_THE_DOOR = SkillGoal(position=(-1.9, -5.0, 0.8))


def by_the_fridge(joint: float) -> Start:
    """Returns a start beside the fridge, whose open door blocks the direct path to the goal."""
    return Start(episode(LAYOUT_A, (-1.4, -2.6, 0.0), articulation={FRIDGE: joint}), PAST_THE_DOOR)


def opened_before(simulator: Simulator) -> Start:
    """Returns the same start recorded with an open door, although its episode has the door shut."""
    shut, wide = by_the_fridge(0.0), by_the_fridge(AJAR_RAD)
    simulator.reset([0], [wide.episode])
    snapshot = dataclasses.replace(simulator.snapshot(0), episode=shut.episode)
    return dataclasses.replace(shut, snapshot=snapshot)


def move_door(simulator: MujocoSimulator, env: int, joint: float) -> None:
    address = simulator.home.joint_qpos[JOINTS.index(FRIDGE)]
    simulator.homes[env].data.qpos[address] = joint


def door(world: WorldState) -> float:
    return float(world.joints[0, JOINTS.index(FRIDGE)])


def mapped(batch: SkillBatch, shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns path and scan of the first environment of an observation."""
    places = batch.options.inputs.layout()
    return {name: shown["state"][0, places[name]] for name in (sensors.WAY, sensors.SCAN)}


def test_path_and_scan_use_door_positions_at_the_start_of_the_skill(one: Simulator):
    one.reset([0], [by_the_fridge(0.0).episode])
    world = one.state([0])
    joints = world.joints.copy()
    joints[0, JOINTS.index(FRIDGE)] = AJAR_RAD
    ajar, spec = dataclasses.replace(world, joints=joints), get("navigate")
    maps = MapSensors(spec.definition, (sensors.WAY, sensors.SCAN), 1, spec.thresholds)
    goal = task.begin(spec.definition, Goals.of([PAST_THE_DOOR]), world, spec.thresholds)
    here = by_the_fridge(0.0).episode
    maps.begin([0], [here], goal, world)
    shut = maps.read([0], world)
    maps.begin([0], [here], goal, ajar)
    wide = maps.read([0], ajar)
    assert abs(shut.way[0, 0] - wide.way[0, 0]) > 0.3
    assert np.abs(shut.scan - wide.scan).max() > 0.3
    # Later movements do not change the map.
    later = maps.read([0], world)
    assert np.array_equal(later.way, wide.way) and np.array_equal(later.scan, wide.scan)


def test_a_recorded_start_with_an_open_door_observes_the_door_open(three: Simulator):
    batch = SkillBatch(EnvOptions.of("navigate"), three)
    expected = mapped(batch, batch.reset([1], [by_the_fridge(AJAR_RAD)]))
    start = opened_before(three)
    shown = mapped(batch, batch.reset([0], [start]))
    assert start.episode.articulation[FRIDGE] == 0.0 and door(batch.world(0)) > 1.1
    for name, values in expected.items():
        np.testing.assert_allclose(shown[name], values, atol=1e-6)
    shut = mapped(batch, batch.reset([1], [by_the_fridge(0.0)]))
    assert all(np.abs(shut[name] - shown[name]).max() > 0.3 for name in shown)


def test_a_snapshot_after_a_door_was_moved_restores_the_same_observation(three: Simulator):
    batch = SkillBatch(EnvOptions.of("navigate"), three)
    begun = mapped(batch, batch.reset([0], [opened_before(three)]))
    move_door(three, 0, 0.0)
    idle = IDLE[None]
    before = batch.step([0], idle).observation
    assert door(batch.world(0)) < 0.1
    assert np.abs(mapped(batch, before)["scan"] - begun["scan"]).max() < 0.01
    restored = batch.restore(2, batch.snapshot(0))
    assert same(restored, before)
    for _ in range(3):
        steps = [batch.step([env], idle) for env in (0, 2)]
        assert same(steps[0].observation, steps[1].observation)
        assert steps[0].outcome.reward == steps[1].outcome.reward
    assert batch.path_metrics(0, True) == batch.path_metrics(2, True)


def test_the_facing_of_a_handle_stays_that_of_the_start_of_the_skill(three: Simulator):
    batch = SkillBatch(EnvOptions.of("open_fridge", sensors="fetch"), three)
    where = batch.options.inputs.layout()[sensors.FACING]

    def facing(shown: dict[str, np.ndarray]) -> float:
        cosine, sine = shown["state"][0, where]
        assert cosine**2 + sine**2 == pytest.approx(1.0, abs=1e-5)
        return float(np.arctan2(sine, cosine))

    start = Start(by_the_fridge(0.0).episode, SkillGoal(marker=FRIDGE))
    begun = facing(batch.reset([1], [start]))
    normal = handle(LAYOUT_A, FRIDGE).normal(0.0)
    heading = batch.world(1).base[0, 2]
    turned = begun + heading - np.arctan2(normal[1], normal[0])
    assert np.cos(turned) == pytest.approx(1.0, abs=1e-6)
    # Base and door move; the facing stays the same in the world frame.
    move_door(three, 1, AJAR_RAD)
    turning = IDLE.copy()
    turning[act.BASE.start + 1] = 1.0
    shown = batch.step([1], turning[None]).observation
    assert facing(shown) == pytest.approx(begun + heading - batch.world(1).base[0, 2], abs=1e-3)
    assert same(batch.restore(0, batch.snapshot(1)), shown)


def test_a_snapshot_without_the_scanned_map_is_refused(three: Simulator):
    batch = SkillBatch(EnvOptions.of("navigate"), three)
    batch.reset([0], [by_the_fridge(0.0)])
    snapshot = batch.snapshot(0)
    less = {name: values for name, values in snapshot.path.items() if name != "scan_joints"}
    with pytest.raises(UserError, match="scan_joints missing or unknown"):
        batch.restore(0, dataclasses.replace(snapshot, path=less))


# -- options -----------------------------------------------------------------------------------


def test_action_parts_outside_the_mask_have_no_effect(one: Simulator):
    ends = []
    for junk in (-1.0, 1.0):
        env = env_of("navigate", one)
        env.reset(options={"start": 0})
        for _ in range(3):
            action = np.full(act.SIZE, junk)
            action[act.BASE], action[act.STOP] = [0.2, 0.1], -1.0
            shown, *_ = env.step(action)
        ends.append(shown["state"])
    assert np.array_equal(ends[0], ends[1])


def test_without_base_movement_the_base_stands_still_and_the_arm_moves(one: Simulator):
    env = env_of("pick", one, base_movement=False)
    assert not env.action_mask[act.BASE].any() and env.action_mask[act.ARM].all()
    env.reset(options={"start": 0})
    before = env.world
    for _ in range(5):
        env.step(np.full(act.SIZE, 0.5))
    assert np.abs(env.world.base - before.base).max() < 1e-3
    assert np.abs(env.world.arm - before.arm).max() > 0.02


def test_a_single_number_for_depth_gives_a_square_image(one: Simulator):
    shown, _ = env_of("pick", one, depth=4).reset(seed=0)
    assert shown["depth"].shape == (4, 4)


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_depth_channel_adds_an_axis_of_one_channel(mode: str):
    options = {"starts": starts("pick"), "num_objects": 12, "depth": (4, 6)}
    plain, channel = (
        gymnasium.make_vec("tpsrl/Pick-v0", 2, vectorization_mode=mode, **options, **more)
        for more in ({}, {"depth_channel": True})
    )
    shown, other = (env.reset(seed=0)[0]["depth"] for env in (plain, channel))
    assert other.shape == (2, 1, 4, 6) and np.array_equal(shown, other[:, 0])
    assert channel.observation_space["depth"].shape == other.shape
    with pytest.raises(UserError, match="depth_channel: needs a depth camera"):
        SkillEnv("pick", depth_channel=True)


@pytest.mark.parametrize("mode", [None, "sync", "vector_entry_point"])
def test_gymnasiums_torch_wrapper_converts_observations_and_infos(mode: str | None):
    torch = pytest.importorskip("torch")
    options = {"starts": starts("navigate"), "num_objects": 12, "horizon": 2}
    if mode is None:
        env: Any = gymnasium.make("tpsrl/Navigate-v0", **options)
        env = gymnasium.wrappers.NumpyToTorch(env)
    else:
        env = gymnasium.make_vec("tpsrl/Navigate-v0", 2, vectorization_mode=mode, **options)
        env = gymnasium.wrappers.vector.NumpyToTorch(env)
    _, info = env.reset(seed=0)
    for _ in range(3):
        assert kinds_of(info) == {torch.Tensor}
        shown, *_, info = env.step(torch.zeros(env.action_space.shape))
        assert kinds_of(shown) == {torch.Tensor}


def test_depth_has_the_given_size_and_sensors_can_be_chosen(one: Simulator):
    shown, _ = env_of("pick", one, depth=(3, 5)).reset(seed=0)
    assert shown["depth"].shape == (3, 5) and shown["state"].shape == (14,)
    both, _ = env_of("pick", one, depth=[4, 4], sensors="full").reset(seed=0)
    assert both["depth"].shape == (4, 4) and both["state"].shape == (24,)
    assert 0.0 <= both["depth"].min() < both["depth"].max() <= 1.0
    assert list(env_of("pick", one).reset(seed=0)[0]) == ["state"]


def test_thresholds_decide_when_a_skill_has_succeeded(one: Simulator):
    action = np.zeros(act.SIZE)
    action[act.STOP] = 1.0
    for angle, success in ((0.26, False), (1.7, True)):  # the goal is to the left
        env = env_of("navigate", one, thresholds=NavigateThresholds(angle_rad=angle))
        env.reset(options={"start": 0})
        *_, terminated, _, info = env.step(action)
        assert terminated and info["success"] is success
        assert env.failures[info["failure"]] == ("" if success else "stopped")
        assert info["results"]["heading"]["holds"] is success


def test_an_environment_starts_from_a_file_of_recorded_states(one: Simulator, tmp_path):
    env = env_of("pick", one)
    env.reset(options={"start": 1})
    for action in some_actions(10)[:, 0]:
        env.step(action)
    world = env.world
    recorded = Start(env.episode, env.goal, env.snapshot().home)
    save_starts(tmp_path / "starts.npz", [recorded])
    again = env_of("pick", one, starts=tmp_path / "starts.npz")
    again.reset(seed=3)
    assert np.array_equal(again.world.base, world.base)
    assert np.array_equal(again.world.arm, world.arm)
    assert again.goal.object == 0 and len(load_starts(tmp_path / "starts.npz")) == 1
    assert again.batch.steps(0) == 0


def test_a_vector_starts_from_a_file_of_recorded_states(three: Simulator, tmp_path):
    batch = SkillBatch(EnvOptions.of("navigate"), three)
    batch.reset([0, 1], starts("navigate")[:2])
    for action in some_actions(5, 2):
        batch.step([0, 1], action)
    recorded = [
        Start(batch.episode(env), batch.goal(env), batch.snapshot(env).home) for env in (0, 1)
    ]
    bases = {tuple(batch.world(env).base[0]) for env in (0, 1)}
    save_starts(tmp_path / "starts.npz", recorded)
    env = SkillVectorEnv("navigate", simulator=three, starts=tmp_path / "starts.npz", horizon=1)
    env.reset(seed=0)
    assert {tuple(env.batch.world(home).base[0]) for home in range(3)} <= bases
    *_, truncated, infos = env.step(np.zeros((3, act.SIZE), dtype=np.float32))
    assert truncated.all() and (infos["path"]["driven_m"] < 0.05).all()
    assert (infos["path"]["shortest_m"] >= 0.0).all()


def test_navigate_reports_path_metrics(one: Simulator):
    env = env_of("navigate", one, horizon=3)
    env.reset(options={"start": 0})
    ahead = np.zeros(act.SIZE)
    ahead[8], ahead[act.STOP] = 1.0, -1.0
    before = env.world.base[0, :2]
    for _ in range(3):
        *_, info = env.step(ahead)
        assert info["path"]["distance_left_m"] > 0.0
    driven = float(np.linalg.norm(env.world.base[0, :2] - before))
    assert driven > 0.05 and info["path"]["driven_m"] == pytest.approx(driven, abs=1e-3)
    assert info["path"]["spl"] == 0.0
    assert env_of("pick", one).batch.path_metrics(0, True) is None


def test_metrics_of_a_path_that_the_map_does_not_have_are_left_out(
    one: Simulator, monkeypatch: pytest.MonkeyPatch
):
    env = env_of("navigate", one, horizon=3)
    env.reset(options={"start": 0})
    found = {"driven_m": 1.0, "shortest_m": np.inf, "spl": np.nan}
    ways = {name: np.array([value]) for name, value in found.items()}
    monkeypatch.setattr(SkillBatch, "ways", lambda *_: ways)
    assert env.batch.path_metrics(0, True) == {"driven_m": 1.0}


def test_a_start_without_room_for_the_robot_is_drawn_again(monkeypatch: pytest.MonkeyPatch):
    source, found = StartSource("pick", num_episodes=4), starts("pick")[0]

    class States:
        @staticmethod
        def prepare(*arguments: Any, processes: int | None = None) -> None: ...

        @staticmethod
        def obtain(skill: Any, indices: Any, *where: Any, processes: int | None = None):
            if next(iter(indices)) % BASE_EPISODES != 2:
                raise NoPoseError("no free pose of the robot")
            return [found]

    monkeypatch.setattr(source, "_states", States)
    index, start = source.draw(np.random.default_rng(0))
    assert index % BASE_EPISODES == 2 and start is found
    with pytest.raises(NoPoseError):
        source[0]
    source.weigh(np.array([1.0, 1.0, 0.0, 1.0]))  # excludes the only start with room
    with pytest.raises(NoPoseError):
        source.draw(np.random.default_rng(0))
    monkeypatch.setattr("skills.starts.source.receptacle", lambda start: "sink")
    about = StartSource("pick", "own@sink", num_episodes=4)
    monkeypatch.setattr(about, "_states", States)
    assert about.groups == 1 and about[0] is found


def test_a_source_draws_from_all_of_its_starts():
    source = StartSource("pick", starts("pick"))
    rng = np.random.default_rng(0)
    assert {source.draw(rng)[0] for _ in range(100)} == set(range(6))
    with pytest.raises(UserError, match="must be between 0 and 5"):
        source[6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dept": (8, 8)}, "did you mean 'depth'"),
        ({"depth": (8,)}, "depth"),
        ({"depth": (0, 8)}, "depth"),
        ({"depth": 0}, "depth: 0 is not an integer"),
        ({"depth": "64"}, "depth: '64' is not an integer"),
        ({"depth": True}, "depth: True is not an integer"),
        ({"sensors": "habitt"}, "did you mean 'habitat'"),
        ({"settings": {"dstance": 1.0}}, "did you mean 'distance'"),
        ({"horizon": 0}, "horizon"),
        ({"starts": []}, "starts"),
        ({"starts": "/proc/nowhere.npz"}, "nowhere"),
        ({"starts": None, "num_episodes": 0}, "num_episodes"),
        ({"render_mode": "human"}, "rgb_array"),
        ({"num_objects": "5"}, "num_objects: '5' is not an integer"),
        ({"num_episodes": 2.5}, "num_episodes: 2.5 is not an integer"),
        ({"dataset_seed": True}, "dataset_seed: True is not an integer"),
        ({"critic": "yes"}, "critic: 'yes' is not true or false"),
        ({"settings": 3}, "settings: 3 is not a dictionary"),
        ({"sensors": ("arn",)}, "sensors: unknown value 'arn'; did you mean 'arm'"),
        ({"starts": [1]}, "starts: entry 0 must be a Start, got 1"),
        ({"thresholds": 3}, "thresholds: must be a PickThresholds, got 3"),
        (
            {"depth": (1, 10**9)},
            "depth: .* is out of range, a side has at most 4096 pixels",
        ),
        ({"depth": 4097}, "depth: 4097 is out of range"),
        ({"sensors": ()}, "sensors: name at least one"),
        ({"sensors": ("arm", "arm")}, "sensors: arm, arm contains a duplicate"),
        ({"sensors": ([],)}, "sensors: unknown value"),
        ({"horizon": 5, "settings": {"horizon": 6}}, "horizon: also given in settings"),
        ({"settings": {"success": 1e15}}, r"settings\.success: .* between -1e\+06 and 1e\+06"),
        ({"settings": {"slack": -1e7}}, r"settings\.slack: "),
        ({"settings": {"slack": np.bool_(True)}}, r"settings\.slack: .* is not a number"),
        ({"num_objects": 31}, "num_objects: must be between 0 and 30, got 31"),
        ({"dataset_seed": -1}, "dataset_seed: must be at least 0, got -1"),
        ({"slots": 0}, "slots: must be at least 1, got 0"),
    ],
)
def test_an_invalid_option_is_refused_by_name(one: Simulator, options: dict, message: str):
    with pytest.raises(UserError, match=message):
        env_of("pick", one, **options)


def test_an_unknown_keyword_of_make_is_a_type_error():
    wrong = {"frameskip": 1}
    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'frameskip'"):
            make("tpsrl/Pick-v0", **wrong)


@pytest.mark.parametrize("skill", ["navigate", "flee"])
def test_base_movement_cannot_be_disabled_for_skills_that_only_drive(skill: str):
    with pytest.raises(UserError, match=f"base_movement: {skill} moves only the base"):
        EnvOptions.of(skill, base_movement=False)
    EnvOptions.of("pick", base_movement=False)


def test_settings_accept_numpy_numbers(one: Simulator):
    given = {"horizon": np.int64(5), "slack": np.float32(0.5), "force_total_n": np.float64(3)}
    changed = env_of("pick", one, settings=given).batch.settings
    assert (changed.horizon, changed.slack, changed.force_total_n) == (5, 0.5, 3.0)
    assert type(changed.horizon) is int and type(changed.slack) is float


def test_an_invalid_simulator_or_snapshot_is_refused(one: Simulator):
    with pytest.raises(UserError, match="simulator: 'x' is not a sim"):
        SkillEnv("pick", simulator="x")  # type: ignore[arg-type]
    env = env_of("pick", one)
    env.reset(seed=0)
    with pytest.raises(UserError, match="snapshot: must be a SkillSnapshot, got 'x'"):
        env.restore("x")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [SkillEnv, SkillVectorEnv])
def test_a_closed_environment_refuses_every_call(kind: Any):
    env = kind("open_drawer", starts=starts("open_drawer"))
    env.reset(seed=0)
    env.close()
    env.close()
    for call in (env.reset, lambda: env.step(np.zeros(act.SIZE)), env.render):
        with pytest.raises(UserError, match="environment: closed"):
            call()


@pytest.mark.parametrize("over", [[False, True, False], [True, True, True]])
def test_actions_are_validated_even_if_environments_are_being_reset(
    three: Simulator, over: list[bool]
):
    env = SkillVectorEnv("pick", simulator=three, starts=starts("pick"))
    env.reset(seed=0)
    for wrong in (np.zeros((3, 5)), np.zeros((1, act.SIZE)), "garbage", None, [[1], [1, 2]]):
        env._over[:] = over
        with pytest.raises(UserError, match="actions: "):
            env.step(wrong)  # type: ignore[arg-type]
    env.step(np.zeros((3, act.SIZE)))


def test_invalid_actions_reset_options_and_goals_are_refused(one: Simulator):
    env = env_of("pick", one)
    with pytest.raises(UserError, match="not reset"):
        env.step(np.zeros(act.SIZE))
    env.reset(seed=0)
    with pytest.raises(UserError, match="shape"):
        env.step(np.zeros(3))
    with pytest.raises(UserError, match="finite"):
        env.step(np.full(act.SIZE, np.nan))
    with pytest.raises(UserError, match=r"actions: must be an array of shape \(1, 11\)"):
        env.step([[1], [1, 2]])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reset options: got an unexpected keyword argument 'str"):
        env.reset(options={"strat": 1})
    with pytest.raises(UserError, match="actions: must be real numbers"):
        env.step(np.zeros(act.SIZE, complex))
    for given in (1.5, True, "0", None, [1]):
        with pytest.raises(UserError, match=r"start: .* is not an integer"):
            env.reset(options={"start": given})
    with pytest.raises(UserError, match="start: must be at least 0, got -1"):
        env.reset(options={"start": -1})
    with pytest.raises(UserError, match="reset options: 3 is not a dictionary"):
        env.reset(options=3)  # type: ignore[arg-type]
    lacking = [dataclasses.replace(start("pick"), goal=SkillGoal())]
    with pytest.raises(UserError, match=r"goal\.object: missing; pick needs it"):
        env_of("pick", one, starts=lacking).reset(seed=0)
    beyond = [dataclasses.replace(start("pick"), goal=SkillGoal(7))]
    with pytest.raises(UserError, match=r"goal\.object: is 7"):
        env_of("pick", one, starts=beyond).reset(seed=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": [1]}, "seed: 1 seeds for 3 environments"),
        ({"seed": "abc"}, "seed: 'abc' is not an integer"),
        ({"seed": [1, -2, 3]}, "seed: must be at least 0, got -2"),
        ({"options": {"reset_mask": [True]}}, "reset_mask: must be a boolean array of shape .3,."),
        (
            {"options": {"reset_mask": [1, 0, 1]}},
            "reset_mask: must be a boolean array of shape .3,.",
        ),
    ],
)
def test_a_vector_refuses_invalid_seeds_and_reset_masks(
    three: Simulator, given: dict[str, Any], message: str
):
    vector = SkillVectorEnv("pick", simulator=three, starts=starts("pick"))
    vector.reset(seed=0)
    with pytest.raises(UserError, match=message):
        vector.reset(**given)
    before = vector.batch.observe([0, 1, 2])
    shown, infos = vector.reset(options={"reset_mask": np.zeros(3, bool)})
    assert infos == {} and same(shown, before)


@pytest.mark.parametrize(
    ("num_envs", "depth", "message"),
    [
        (1000, 4000, "num_envs: 1000 needs 179.4 GiB of memory here, this machine has 23.0 GiB; "),
        (10**9, None, "num_envs: 1000000000 needs 465,661.3 GiB"),
        (1.5, None, "num_envs: 1.5 is not an integer"),
    ],
)
def test_more_environments_than_fit_in_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch, num_envs: Any, depth: int | None, message: str
):
    monkeypatch.setattr("tpsrl.runtime.machine.memory_bytes", lambda: 23.0 * 2**30)
    with pytest.raises(UserError, match=re.escape(message)):
        SkillVectorEnv("pick", num_envs, depth=depth)


# -- agents ------------------------------------------------------------------------------------


def played(skill: str, agent: str, simulator: Simulator, **options: object) -> Sequence:
    env = env_of(skill, simulator, **options)
    return episodes.run(env, agents.make(agent), range(3))


@pytest.mark.parametrize("agent", agents.names())
@pytest.mark.parametrize("skill", planned())
def test_agents_without_a_plan_solve_no_skill(one: Simulator, skill: str, agent: str):
    results = played(skill, agent, one, horizon=100)
    assert [r.start for r in results] == [0, 1, 2]
    assert not any(r.success for r in results)
    for result in results:
        assert result.reward == pytest.approx(sum(result.reward_terms.values()))
        assert not result.results["success"].holds


def test_an_episode_ends_if_a_policy_stops_a_skill_without_a_stop_action(one: Simulator):
    class Quit(agents.ZeroAgent):
        def act(self, world, depth=None):
            return np.ones(act.SIZE)

    (result,) = episodes.run(env_of("pick", one), Quit(), [0])
    assert result.ended_by == "skill_stop" and result.steps == 2


def test_homes_have_enough_slots_for_the_objects_of_the_skill():
    def slots(skill: str, **options: object) -> int:
        simulator = EnvOptions.of(skill, **options).simulator(1)
        assert isinstance(simulator, MujocoSimulator)
        return simulator.home.capacity

    few, many = CAPACITIES
    assert (slots("pick"), slots("pick", num_objects=12)) == (many, few)
    assert (slots("open_drawer"), slots("open_drawer", num_objects=30)) == (few, many)
    assert slots("open_drawer", starts="exit_states.npz") == many  # with any number of objects
    assert slots("pointnav", num_objects=30) == few


def test_a_training_has_at_most_12_objects_by_default():
    def objects(*words: str) -> int:
        return env_options(loading.training(config.parse(words))).num_objects

    assert objects("skill=pick") == 12 and objects("skill=pick", "num_objects=30") == 30
    assert objects("skill=open_drawer") == 1 and objects("skill=open_drawer", "num_objects=5") == 5


def test_policies_receive_depth_and_the_callback_sees_every_step(one: Simulator):
    class Watch(agents.ZeroAgent):
        depth_size = (4, 4)
        seen: tuple[int, ...] = ()

        def act(self, world, depth=None):
            self.seen = depth.shape
            return super().act(world)

    policy, steps = Watch(), []
    env = env_of("pick", one, depth=(4, 4), horizon=3)
    (result,) = episodes.run(env, policy, [2], lambda env: steps.append(int(env.world.step[0])))
    assert policy.seen == (4, 4) and steps == [0, 1, 2, 3]
    assert result.ended_by == "timeout" and result.start == 2
