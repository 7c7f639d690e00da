"""Environments and domains in third-party libraries, where installed: the extra `peers`."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hab_episodes import set_table

import skills.gym  # noqa: F401  (registers the skills with gymnasium)
from tpsrl import cli
from tpsrl.world.episode import save_episodes

OPTIONS = {"num_objects": 4, "num_episodes": 1}
MODES = ["sync", "vector_entry_point"]


ACTIONS = np.random.default_rng(0).uniform(-1.0, -0.1, (6, 11)).astype(np.float32)  # never a stop


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is of the extra 'peers'")


def vector(mode: str, autoreset: str, **options: Any) -> Any:
    own = {"autoreset_mode": autoreset}
    more: dict[str, Any] = own if mode == "vector_entry_point" else {"vector_kwargs": own}
    name = "tpsrl/Navigate-v0"
    return gymnasium.make_vec(name, 2, vectorization_mode=mode, **more, **options, **OPTIONS)


def rolled_out(env: gymnasium.Env, actions: np.ndarray = ACTIONS) -> tuple[list, list, list]:
    """Returns observations, rewards and the other results of the steps."""
    observations, steps = [env.reset(seed=0)[0]], []
    for action in actions:
        observation, *rest = env.step(action)
        observations.append(observation)
        steps.append(rest)
    env.close()
    return observations, [rest[0] for rest in steps], [rest[1:] for rest in steps]


@pytest.fixture(scope="module")
def bare() -> tuple[list, list, list]:
    return rolled_out(gymnasium.make("tpsrl/Pick-v0", depth=(8, 8), **OPTIONS))


def test_gymnasiums_wrappers_transform_observations(bare):
    wrappers, plain = gymnasium.wrappers, bare[0]
    space = gymnasium.make("tpsrl/Pick-v0", depth=(8, 8), **OPTIONS).observation_space
    wrapped = {
        wrappers.FlattenObservation: ({}, [gymnasium.spaces.flatten(space, o) for o in plain]),
        wrappers.FilterObservation: (
            {"filter_keys": ["state"]},
            [{"state": o["state"]} for o in plain],
        ),
        wrappers.TimeAwareObservation: (
            {"flatten": False},
            [o | {"time": np.array([n], np.int32)} for n, o in enumerate(plain)],
        ),
        wrappers.FrameStackObservation: (
            {"stack_size": 2, "padding_type": "reset"},
            [
                {key: np.stack([before[key], o[key]]) for key in o}
                for before, o in zip([plain[0], *plain], plain, strict=False)
            ],
        ),
    }
    for wrapper, (options, expected) in wrapped.items():
        env = gymnasium.make("tpsrl/Pick-v0", depth=(8, 8), **OPTIONS)
        env = wrapper(wrappers.TimeLimit(env, 100), **options)
        found = rolled_out(env)[0]
        assert all(observation in env.observation_space for observation in found), wrapper
        for one, other in zip(found, expected, strict=True):
            assert data_equivalence(one, other), wrapper


def test_gymnasiums_wrappers_transform_actions_rewards_and_time(bare):
    wrappers = gymnasium.wrappers
    env = gymnasium.make("tpsrl/Pick-v0", depth=(8, 8), **OPTIONS)
    env = wrappers.RescaleAction(env, np.float32(-0.5), np.float32(0.5))
    env = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(env, len(ACTIONS)))
    env = wrappers.TransformReward(env, lambda reward: 2.0 * reward)
    observations, rewards, rest = rolled_out(env, ACTIONS / 2)
    # Scaling to float32 and back changes an action by about 1e-7.
    for one, other in zip(observations, bare[0], strict=True):
        np.testing.assert_allclose(one["state"], other["state"], atol=1e-4)
    np.testing.assert_allclose(rewards, 2.0 * np.array(bare[1]), atol=1e-4)
    assert [truncated for _, truncated, _ in rest] == [False] * (len(ACTIONS) - 1) + [True]
    statistics = rest[-1][-1]["episode"]
    assert statistics["l"] == len(ACTIONS)
    assert statistics["r"] == pytest.approx(sum(bare[1]), abs=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_wrappers_transform_vectors(mode: str):
    wrappers = gymnasium.wrappers.vector
    actions = np.full((2, 11), -0.1, np.float32)
    plain, stacked = vector(mode, "NextStep", horizon=3), vector(mode, "NextStep", horizon=3)
    stacked = wrappers.FlattenObservation(wrappers.RecordEpisodeStatistics(stacked))
    stacked = wrappers.DictInfoToList(wrappers.ClipReward(stacked, -0.01, 0.01))
    space = plain.single_observation_space
    for step in range(5):
        (first, *one), (second, *other) = (
            env.step(actions) if step else env.reset(seed=0) for env in (plain, stacked)
        )
        for index in range(2):
            own = {key: values[index] for key, values in first.items()}
            np.testing.assert_array_equal(second[index], gymnasium.spaces.flatten(space, own))
        if step:
            np.testing.assert_array_equal(np.clip(one[0], -0.01, 0.01), other[0])
        assert len(other[-1]) == 2
        assert ("episode" in other[-1][0]) == (step == 3)
    plain.close()
    stacked.close()


def test_torchrl_creates_and_checks_an_environment():
    envs = library("torchrl.envs")
    env = envs.GymEnv("tpsrl/Pick-v0", depth=(8, 8), **OPTIONS)
    envs.check_env_specs(env)
    rollout = env.rollout(5)
    # TorchRL renames "state".
    assert rollout["observation"].shape == (5, 14) and rollout["depth"].shape == (5, 8, 8)
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_torchrl_wraps_a_vector_without_autoreset(mode: str):
    envs = library("torchrl.envs")
    env = envs.GymWrapper(vector(mode, "Disabled", horizon=3))
    envs.check_env_specs(env)
    rollout = env.rollout(8, break_when_any_done=False)
    assert rollout.shape == (2, 8) and rollout["next", "done"].sum() >= 4
    env.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "tpsrl/Navigate-v0"])
def test_torchrl_refuses_gymnasiums_default_autoreset_mode(name: str):
    envs = library("torchrl.envs")
    options = OPTIONS if name.startswith("tpsrl") else {}
    made = gymnasium.make_vec(name, 2, vectorization_mode="sync", **options)
    with pytest.raises(RuntimeError, match="auto-reset mode"):
        envs.GymWrapper(made)
    made.close()


@pytest.mark.parametrize("infos", [False, True])
@pytest.mark.parametrize("skill", ["Navigate", "Pick"])
def test_minari_collects_episodes(
    skill: str, infos: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    minari = library("minari")
    library("h5py")
    library("jax")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    made = gymnasium.make(f"tpsrl/{skill}-v0", horizon=4, **OPTIONS)
    env = minari.DataCollector(made, record_infos=infos)
    still = np.full(11, -0.1, np.float32)
    for seed in range(2):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(still)
            over = terminated or truncated
    dataset = env.create_dataset("tpsrl/tried-v0")
    assert dataset.total_episodes == 2 and dataset.total_steps == 8
    if infos:
        recorded = dataset[0].infos
        assert recorded["reward_terms"]["slack"].tolist() == [0.0] + [-0.005] * 4
        assert recorded["failure"].tolist() == [0] * 5
    env.close()


def test_stable_baselines3_trains_a_cnn_on_depth():
    sb3 = library("stable_baselines3")
    monitor = library("stable_baselines3.common.monitor")
    options = {"depth": (36, 36), "depth_channel": True, "horizon": 8, **OPTIONS}
    env = monitor.Monitor(gymnasium.make("tpsrl/Pick-v0", **options))
    policy = {"normalize_images": False}
    model = sb3.PPO(
        "MultiInputPolicy", env, n_steps=16, batch_size=16, n_epochs=1, policy_kwargs=policy
    )
    model.learn(32)
    extractors = model.policy.features_extractor.extractors
    assert type(extractors["depth"]).__name__ == "NatureCNN"
    env.close()


@pytest.fixture
def problem(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Folder with a Set Table episode and its problem in one of the shipped domains."""
    episode = dataclasses.replace(set_table(), scenario="set_table")
    save_episodes(tmp_path / "one.jsonl.gz", [episode])
    assert plan(tmp_path, f"domain={request.param}", f"write={tmp_path}") == 0
    return tmp_path


def plan(folder: Path, *arguments: str) -> int:
    return cli.main(["plan", "set_table", f"episodes={folder / 'one.jsonl.gz'}", *arguments])


def check_same_plan(folder: Path) -> None:
    """Asserts that the domain `by_peer.pddl` gives and accepts the plan of the first domain."""
    domain, again = f"domain={folder / 'by_peer.pddl'}", folder / "again"
    assert plan(folder, domain, f"write={again}") == 0
    assert (again / "plan.txt").read_text() == (folder / "plan.txt").read_text()
    assert plan(folder, domain, f"plan={folder / 'plan.txt'}") == 0


@pytest.mark.parametrize("problem", ["mended", "habitat"], indirect=True)
def test_a_domain_written_by_unified_planning_has_the_same_plans(problem: Path):
    planning, engines = library("unified_planning.io"), library("unified_planning.engines")
    reader = planning.PDDLReader()
    read = reader.parse_problem(str(problem / "domain.pddl"), str(problem / "problem.pddl"))
    planning.PDDLWriter(read).write_domain(str(problem / "by_peer.pddl"))
    check_same_plan(problem)
    validator = engines.SequentialPlanValidator()
    validator.skip_checks = True
    valid = validator.validate(read, reader.parse_plan(read, str(problem / "plan.txt")))
    assert valid.status is engines.ValidationResultStatus.VALID


@pytest.mark.parametrize("problem", ["mended", "habitat"], indirect=True)
def test_a_plan_by_fast_downward_is_accepted(problem: Path):
    library("up_fast_downward")
    files, planning = library("unified_planning.io"), library("unified_planning.shortcuts")
    planning.get_environment().credits_stream = None
    read = files.PDDLReader().parse_problem(
        str(problem / "domain.pddl"), str(problem / "problem.pddl")
    )
    with planning.OneshotPlanner(name="fast-downward") as planner:
        found = planner.solve(read).plan
    files.PDDLWriter(read).write_plan(found, str(problem / "found.txt"))
    domain = f"domain={problem / 'domain.pddl'}"
    assert plan(problem, domain, f"plan={problem / 'found.txt'}") == 0


@pytest.mark.parametrize("problem", ["mended", "habitat"], indirect=True)
def test_a_domain_written_by_pddl_has_the_same_plans(problem: Path):
    pddl, formatter = library("pddl"), library("pddl.formatter")
    assert pddl.parse_problem(problem / "problem.pddl").goal
    text = formatter.domain_to_string(pddl.parse_domain(problem / "domain.pddl"))
    (problem / "by_peer.pddl").write_text(text)
    check_same_plan(problem)
