import dataclasses
import itertools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from kinematic_home import LAYOUT
from toy_vec_env import ToyVecEnvFactory

from eval.running import skill_evaluator
from eval.settings import SkillSettings
from skills import registry
from skills.envs import held_out
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.envs.path_meter import PathMeter
from skills.envs.training import TrainingVecEnv, TrainingVecEnvFactory
from skills.starts import dataset
from skills.starts.source import StartSource, start_episodes
from tpsrl import config
from tpsrl.cli import main
from tpsrl.errors import UserError
from tpsrl.rl.collection.noise import Noise
from tpsrl.rl.envs.delay import DelayedVecEnvFactory
from tpsrl.rl.envs.pool import step_all
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.streams import Stream, generator
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.training import task as training_task
from tpsrl.training.settings import TrainingSettings
from tpsrl.world import action as act

N = 3


# Options of an environment, with starts that worker processes need not generate.
Options = dict[str, Any]


@pytest.fixture(scope="module", params=["pick"])
def options(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Options]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(dataset, "BASE_EPISODES", 2)
        drawn = start_episodes(request.param, range(6), "val", 0, 4, processes=1)
        yield {"num_objects": 4, "starts": drawn, "depth": (16, 16), "horizon": 6}


def factory(options: Options, skill: str = "pick") -> TrainingVecEnvFactory:
    return TrainingVecEnvFactory(EnvOptions.of(skill, **options), seed=5)


@pytest.fixture
def homes(options: Options) -> TrainingVecEnv:
    return factory(options)(range(N))


def action(turn: int, count: int = N) -> np.ndarray:
    return np.random.default_rng(turn).uniform(-1, 1, (count, 11)).astype(np.float32)


# -- episodes ----------------------------------------------------------------------------------


def test_environments_start_with_the_starts_drawn_by_their_generators(
    homes: TrainingVecEnv, options: Options
) -> None:
    shown = homes.reset(range(N))
    assert homes.spec.observations == {"state": shown["state"].shape[1:], "depth": (16, 16)}
    env = SkillEnv("pick", **options)
    for home in range(N):
        rng = generator(Stream.STARTS, 5, home)
        index, _ = StartSource("pick", options["starts"]).draw(rng)
        first, _ = env.reset(options={"start": index})
        for name, values in first.items():
            np.testing.assert_array_equal(shown[name][home], values)


def test_a_horizon_can_terminate_and_the_critic_observes_the_remaining_share(
    options: Options,
) -> None:
    given = EnvOptions.of("pick", **{**options, "critic": True})
    homes = TrainingVecEnvFactory(given, seed=5, limit_ends=True)(range(N))
    left = [homes.reset(range(N))["critic"][:, -1]]
    for turn in range(6):
        done = homes.step(range(N), action(turn))
        assert not done.truncated.any() and done.final is None
        left.append(done.observation["critic"][:, -1])
    assert done.terminated.all()
    assert [over.ended_by for over in done.episodes] == ["timeout"] * N
    expected = np.repeat(1.0 - np.array([0, 1, 2, 3, 4, 5, 0])[:, None] / 6, N, axis=1)
    np.testing.assert_allclose(np.array(left), expected, atol=1e-6)


def test_a_truncated_episode_ends_and_the_next_begins_in_one_step(
    homes: TrainingVecEnv, options: Options
) -> None:
    env = SkillEnv("pick", **options)
    homes.reset(range(N))
    rng = generator(Stream.STARTS, 5, 0)
    for _ in range(2):
        index, _ = StartSource("pick", options["starts"]).draw(rng)
        env.reset(options={"start": index})
        rewards, terms = [], []
        for turn in range(6):
            done = homes.step(range(N), action(turn))
            seen, reward, terminated, truncated, info = env.step(action(turn)[0])
            rewards.append(reward)
            terms.append(info["reward_terms"])
            assert done.reward[0] == np.float32(reward)
            assert (done.terminated[0], done.truncated[0]) == (terminated, truncated)
            if truncated:
                assert done.final is not None
                np.testing.assert_array_equal(done.final["state"][0], seen["state"])
                np.testing.assert_array_equal(done.final["depth"][0], seen["depth"])
            else:
                np.testing.assert_array_equal(done.observation["state"][0], seen["state"])
        assert done.truncated.all()
        over = done.episodes[0]
        assert (over.env, over.start_index, over.steps) == (0, index, 6)
        assert (over.success, over.ended_by) == (False, "timeout")
        assert over.reward == pytest.approx(sum(rewards))
        assert over.terms == {
            name: pytest.approx(sum(term[name] for term in terms)) for name in terms[0]
        }
        again = homes.observe(range(N))
        for name, values in done.observation.items():
            np.testing.assert_array_equal(again[name], values)


def test_observations_do_not_depend_on_other_environments(options: Options) -> None:
    together, alone = factory(options)(range(N)), factory(options)([2])
    together.reset(range(N)), alone.reset([0])
    for turn in range(8):
        one = together.step([2, 0], action(turn)[[2, 0]])
        other = alone.step([0], action(turn)[2:])
        np.testing.assert_array_equal(one.observation["depth"][0], other.observation["depth"][0])
        np.testing.assert_array_equal(one.observation["state"][0], other.observation["state"][0])
        assert one.reward[0] == other.reward[0]
        ours = [episode for episode in one.episodes if episode.env == 2]
        assert ours == other.episodes


def test_an_order_of_starts_is_followed_cyclically(options: Options) -> None:
    made = dataclasses.replace(factory({**options, "horizon": 1}), order=(4, 0, 5), stride=2)
    homes = [made([0]), made([1])]
    found: list[list[int]] = [[], []]
    for one in homes:
        one.reset([0])
    for turn in range(4):
        for one, seen in zip(homes, found, strict=True):
            seen += [episode.start_index for episode in one.step([0], action(turn, 1)).episodes]
    assert found == [[4, 5, 0, 4], [0, 4, 5, 0]]


def test_failed_starts_are_retried_a_limited_number_of_times(options: Options) -> None:
    given = EnvOptions.of("pick", **options)
    fresh, retried = (
        TrainingVecEnvFactory(given, seed=5, retry=share)(range(N)) for share in (0.0, 0.9)
    )
    repeated = []
    for homes in (fresh, retried):
        homes.reset(range(N))
        begun: list[list[int]] = [[] for _ in range(N)]
        for turn in range(6 * 30):
            for over in homes.step(range(N), action(turn)).episodes:
                begun[over.env].append(over.start_index)
        repeated.append(np.mean([a == b for row in begun for a, b in itertools.pairwise(row)]))
        # A start that has failed four times in a row is not retried.
        runs = [len([*group]) for row in begun for _, group in itertools.groupby(row)]
        assert len(begun[0]) == 30 and max(runs) < 12
    assert repeated[0] < 0.35 < repeated[1]
    assert not any(fresh._failed) and all(retried._failed)


@pytest.mark.parametrize("skill", ["place", "pick"])
def test_a_new_policy_keeps_a_held_object_and_otherwise_varies_the_grip(skill: str) -> None:
    homes = TrainingVecEnvFactory(EnvOptions.of(skill, num_objects=4))([0])
    torch.manual_seed(0)
    policy = ActorCritic(homes.spec, PolicySettings(encoder="state", lstm_layers=0, state_width=8))
    count = 20_000
    shown = {"state": torch.randn(count, *homes.spec.observations["state"])}
    first = torch.ones(count, dtype=torch.bool)
    with torch.inference_mode():
        step = policy.act(shown, torch.zeros(count, 11), policy.initial_memory(count), first)
        drawn = gaussian.sample(step.mean, step.std, policy.mask, torch.Generator().manual_seed(0))
    opening = float((drawn[:, act.GRIP] < 0).float().mean())
    if registry.get(skill).definition.begins_holding:
        assert 1 - (1 - opening) ** 20 < 0.2  # release within 20 steps is unlikely,
        assert 1 - (1 - opening) ** 300 > 0.5  # release within an episode is likely
    else:
        assert 0.3 < opening < 0.7


def test_starts_and_actions_are_drawn_from_separate_random_streams(
    homes: TrainingVecEnv, options: Options
) -> None:
    def states(rngs: list[np.random.Generator]) -> list[int]:
        return [rng.bit_generator.state["state"]["state"] for rng in rngs]

    noise = states(Noise(N, 11, seed=5)._rngs)
    starts, scheduler = states(homes._rngs), states([SerialEnvPool(factory(options), N, 5)._rng])
    plain = states([np.random.default_rng((5, env)) for env in range(N + 1)])
    homes.reseed(1)
    every = [*noise, *starts, *scheduler, *plain, *states(homes._rngs)]
    assert len(set(every)) == len(every)


# -- snapshots ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["pick", "navigate"], indirect=True)
def test_environments_resume_bit_for_bit_in_workers(options: Options) -> None:
    skill = options["starts"][0].episode.id.partition("_")[0]
    made = dataclasses.replace(factory(options, skill), retry=0.5)
    serial = SerialEnvPool(made, N)
    serial.reset()
    for turn in range(4):
        step_all(serial, action(turn))
    arrays, note = serial.snapshot()
    note = json.loads(json.dumps(note))  # as in a checkpoint
    workers = WorkerEnvPool(made, N, 2)
    try:
        workers.restore(arrays, note)
        for name, values in serial.observation.items():
            np.testing.assert_array_equal(workers.observation[name], values)
        for turn in range(4, 20):
            one, other = (step_all(each, action(turn)) for each in (serial, workers))
            for name, values in one.observation.items():
                np.testing.assert_array_equal(other.observation[name], values)
            np.testing.assert_array_equal(other.reward, one.reward)
            assert other.episodes == one.episodes
            assert (one.final is None) == (other.final is None)
            if one.final is not None and other.final is not None:
                np.testing.assert_array_equal(other.final["depth"], one.final["depth"])
    finally:
        workers.close()


def test_incomplete_snapshots_are_refused(homes: TrainingVecEnv) -> None:
    homes.reset(range(N))
    arrays, note = homes.snapshot(0)
    for entry in ("engine", "rng", "episode"):
        less = {name: value for name, value in note.items() if name != entry}
        with pytest.raises(UserError, match=f"snapshot: {entry}: is missing"):
            homes.restore(0, arrays, less)
    with pytest.raises(UserError, match="snapshot: task/steps: missing or unknown"):
        homes.restore(0, {n: v for n, v in arrays.items() if n != "task/steps"}, note)
    homes.restore(0, arrays, note)


def test_damaged_arrays_of_an_environment_are_refused_by_name(homes: TrainingVecEnv) -> None:
    homes.reset(range(N))
    arrays, note = homes.snapshot(0)
    for name, value in (
        ("task/position", np.array(1.0)),
        ("task/position", np.full((1, 3), np.nan)),
        ("task/position", np.zeros((2, 3))),
        ("task/object", np.array([99])),
        ("task/object", np.array([0.0])),
        ("task/joint", np.array([-2])),
        ("task/steps", np.array([-1])),
        ("home/data/qpos", np.array(1.0)),
        ("home/scalar/nv_awake", np.array(10**8)),
        ("path/more", np.zeros(3)),
        ("else", np.zeros(3)),
    ):
        with pytest.raises(UserError, match=f"snapshot: .*{name.rpartition('/')[2]}"):
            homes.restore(0, {**arrays, name: value}, note)
    homes.restore(0, arrays, note)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("start", 2**80),
        ("failed", [[-1, 1]]),
        ("terms", {"slack": []}),
        ("rng", {}),
        ("episode", {}),
    ],
)
def test_damaged_notes_of_an_environment_are_refused(
    homes: TrainingVecEnv, key: str, value: object
) -> None:
    homes.reset(range(N))
    arrays, note = homes.snapshot(0)
    with pytest.raises(UserError, match=r"^snapshot: "):
        homes.restore(0, arrays, {**note, key: value})


def test_damaged_arrays_of_a_path_are_refused_by_name() -> None:
    meter, goal = PathMeter(2), np.zeros(3)
    arrays = meter.to_arrays(0)
    for name, value in (
        ("start", np.zeros(3)),
        ("here", np.full(2, np.inf)),
        ("joints", np.array(1.0)),
        ("left", np.zeros(1)),
        ("driven", np.array(1e300)),
        ("driven", np.array("far")),
    ):
        with pytest.raises(UserError, match=f"path: array {name}: "):
            meter.restore(1, {**arrays, name: value}, LAYOUT, goal)
    meter.restore(1, arrays | {"left": np.array(np.nan)}, LAYOUT, goal)


def test_damaged_images_of_a_delay_are_refused_by_name() -> None:
    late = DelayedVecEnvFactory(ToyVecEnvFactory())(range(2))
    late.reset([0, 1])
    arrays, note = late.snapshot(0)
    name = next(name for name in arrays if name.startswith("shown/"))
    good = arrays[name]
    for value in (good[..., None], good.astype(np.float64), good * np.float32(np.nan)):
        with pytest.raises(UserError, match=f"snapshot: {name}: must be"):
            late.restore(1, {**arrays, name: value}, note)
    late.restore(1, arrays, note)


# -- the rest ----------------------------------------------------------------------------------


def test_the_factory_can_be_pickled(options: Options) -> None:
    made = factory(options)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(UserError, match="skill: unknown value 'pik'; did you mean 'pick'"):
        factory(options, "pik").prepare()


def test_rendering_and_resets_are_timed(homes: TrainingVecEnv) -> None:
    homes.reset(range(N))
    before = homes.seconds
    assert before["resets"] > 0.0 and before["rendering"] > 0.0
    homes.step(range(N), action(0))
    after = homes.seconds
    assert after["rendering"] > before["rendering"]
    assert after["resets"] == before["resets"]


def test_validations_and_evaluations_have_different_start_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "_FEW", 1)
    few = ["num_objects=4", "processes=0"]
    chosen = ["skill=pick", *few, "num_episodes=1", "validation_episodes=1", "preset=cpu_state"]
    task, *_ = training_task.make(config.load(TrainingSettings, config.parse(chosen)))
    assert task.validation is not None
    homes = task.validation([0])
    homes.reset()
    ours = homes.snapshot()[1]["environments"][0]["episode"]
    evaluated = config.load(SkillSettings, config.parse(["skill=pick", *few, "num_episodes=1"]))
    theirs = skill_evaluator.obtain(evaluated)[0].episode.to_json()
    assert ours["layout"] == theirs["layout"]  # the first of the same split
    for field in ("id", "objects", "robot_start"):
        assert ours[field] != theirs[field]


def test_task_settings_can_be_for_one_skill_only() -> None:
    task = {"force": 0.1, "place": {"drop": 5.0}, "pick": {"slack": 0}}
    assert training_task.task_changes(task, "place", "task") == {"force": 0.1, "drop": 5}
    assert training_task.task_changes(task, "navigate", "task") == {"force": 0.1}
    with pytest.raises(UserError, match="task: unknown value 'plac'; did you mean 'place'"):
        training_task.task_changes({"plac": {"drop": 5}}, "place", "task")
    with pytest.raises(UserError, match=r"task.place: unknown value 'drp'; did you mean 'drop'"):
        training_task.task_changes({"place": {"drp": 5}}, "pick", "task")


def test_thresholds_of_a_training_do_not_apply_to_its_validation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[EnvOptions] = []

    class Made(SimpleNamespace):
        def __init__(self, options: EnvOptions) -> None:
            made.append(options)

        def prepare(self, processes: int) -> None: ...

    monkeypatch.setattr(held_out, "TrainingVecEnvFactory", Made)
    settings = config.load(TrainingSettings, {"skill": "place", "thresholds.goal_m": 0.1})
    options = training_task.env_options(settings)
    assert options.thresholds == dataclasses.replace(registry.get("place").thresholds, goal_m=0.1)
    held_out.validation_pools(options, held_out.HeldOut(1, 0, 1))
    assert made[0].thresholds == registry.get("place").thresholds
    for entry, message in (
        ("arm_rad=1", "thresholds: unknown value 'arm_rad' .valid: goal_m"),
        ("goal_m=far", "thresholds.goal_m: 'far' is not a number"),
        ("goal_m=.inf", "thresholds.goal_m: inf is not a finite number"),
    ):
        with pytest.raises(UserError, match=message):
            given = config.parse(["skill=place", f"thresholds.{entry}"])
            training_task.success_thresholds(config.load(TrainingSettings, given))


def test_the_task_recorded_by_earlier_versions_is_read(tmp_path: Path) -> None:
    text = "skill: place\ntask: horizon:200,place.drop:5,force_total_n:null\n"
    file = tmp_path / "config.yaml"
    file.write_text(text + "preset:\n  task: force:0.0004,pick.drop:1\n")
    found = config.load(TrainingSettings, config.parse(["task.force=0.1"]), file)
    assert found.task == {"horizon": 200, "drop": 5, "force_total_n": None, "force": 0.1}
    assert found.preset.task == {"force": 0.0004, "pick": {"drop": 1}}
    file.write_text(config.to_yaml(found))
    assert config.load(TrainingSettings, {}, file) == found


def test_bench_train_reports_the_time_of_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "_FEW", 1)
    small = ["num_envs=2", "num_steps=8", "policy.encoder=state", "policy.lstm_width=8"]
    arguments = ["processes=0", "threads=1", "rollouts=2", "warm_up=0", "num_objects=4"]
    arguments += ["num_episodes=1", f"out={tmp_path}", "turns=1", "collector=sync,ver"]
    arguments += [f"preset.{key}" for key in small]
    assert main(["bench", "train", *arguments]) == 0
    report = json.loads((tmp_path / "train.json").read_text())
    environments = {"simulation", "rendering", "resets"}
    rest = {"inference", "copying", "waiting", "learning", "other"}
    assert report["settings"]["preset.policy.encoder"] == "state"
    assert list(report["collectors"]) == ["sync", "ver"]
    for found in report["collectors"].values():
        assert set(found["seconds"]) == environments | rest
        assert found["samples"] == 32
        assert found["samples_per_s"]["mean"] == pytest.approx(32 / found["took_s"])
        assert sum(found["seconds"].values()) == pytest.approx(found["took_s"], rel=0.1)
        assert [row["samples"] for row in found["rollouts"]] == [16, 16]
