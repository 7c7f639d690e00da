"""Environments of a skill on a device: no wait within a rollout, and the steps of `SkillBatch`.

Tensors of torch's device `meta` have no values. Whatever reads one, as an `if` or a copy to the
processor would, raises an error, so a rollout that is filled there does not wait for a GPU.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import tpsrl.sim
from skills.core import task
from skills.core.state import Goals
from skills.envs import device
from skills.envs.batch import SkillBatch
from skills.envs.map_sensors import MapSensors
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.starts import dataset
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.envs import device_env
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.sim.batch.base import BatchSimulator
from tpsrl.training.settings import TrainingSettings
from tpsrl.training.task import make
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import CLEARANCE_ROWS, NEIGHBOUR_ROWS
from tpsrl.world.scan import RAYS
from tpsrl.world.state import WorldState

SKILLS = (
    "navigate", "pick", "place", "open_fridge", "close_fridge", "open_drawer", "close_drawer",
)  # fmt: skip


@pytest.fixture(autouse=True)
def few_episodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Generates two base episodes of each dataset, once for all tests of the module."""
    folder = tmp_path_factory.getbasetemp() / "device_episodes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(folder))
        patch.setattr(dataset, "BASE_EPISODES", 2)
        yield


def factory(skill: str, count: int = 3, **given: Any) -> TrainingVecEnvFactory:
    limit_ends = given.pop("limit_ends", False)
    options = EnvOptions.of(skill, **({"num_objects": 4, "num_episodes": 2} | given))
    return TrainingVecEnvFactory(options, seed=5, limit_ends=limit_ends, device_starts=count)


class OnMeta:
    """A batch simulator whose tensors have no values."""

    def __init__(self, batch: BatchSimulator) -> None:
        self._batch, self.num_envs = batch, batch.num_envs

    def prepare(self, episodes: Sequence[Episode]) -> None:
        self._batch.prepare(episodes)
        self._batch.reset(range(self.num_envs), [episodes[0]] * self.num_envs)

    def prepared(self) -> WorldState:
        return self._batch.prepared()

    def restart(self, which: torch.Tensor, starts: torch.Tensor) -> None:
        assert which.is_meta and starts.is_meta

    def step(self, actions: torch.Tensor) -> None:
        assert actions.is_meta

    def state(self) -> WorldState:
        world = self._batch.state()
        names = (field.name for field in dataclasses.fields(world))
        return WorldState(**{name: getattr(world, name).to("meta") for name in names})

    def depth(self, height: int, width: int) -> torch.Tensor:
        return torch.empty(self.num_envs, height, width, device="meta")

    def laser(self) -> torch.Tensor:
        return self._batch.laser().to("meta")

    def clearance(self, targets: torch.Tensor) -> torch.Tensor:
        assert targets.is_meta
        return torch.empty(self.num_envs, CLEARANCE_ROWS, 4, device="meta")

    def neighbours(self, targets: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        assert targets.is_meta and points.is_meta
        return torch.empty(self.num_envs, NEIGHBOUR_ROWS, 4, device="meta")

    def scan(
        self, maps: torch.Tensor, origin: tuple[float, float], rows: torch.Tensor
    ) -> torch.Tensor:
        assert maps.is_meta and rows.is_meta
        return torch.empty(self.num_envs, RAYS, device="meta")

    def object_velocity(self, objects: torch.Tensor) -> torch.Tensor:
        assert objects.is_meta
        return torch.empty(self.num_envs, 6, device="meta")

    def close(self) -> None:
        self._batch.close()


@pytest.mark.parametrize("skill", SKILLS)
@pytest.mark.parametrize(("limit_ends", "sensors"), [(False, "fetch"), (True, "teacher")])
def test_only_the_end_of_a_rollout_waits_for_the_device(
    skill: str, limit_ends: bool, sensors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tpsrl.sim.make_batch
    monkeypatch.setattr(tpsrl.sim, "make_batch", lambda *a, **k: OnMeta(plain(*a, **k)))
    monkeypatch.setattr(device_env, "random_on", lambda device, seed: torch.Generator())
    given: dict[str, Any] = {"sensors": sensors, "depth": 32, "limit_ends": limit_ends}
    if sensors == "teacher":
        given |= {"critic": True, "settings": {"way": 6.0, "hand": 4.0}}
    made = factory(skill, **given)
    settings = TrainSettings(num_envs=2, num_steps=4, collector="device")
    parts = assemble(settings, made, device="meta")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor") as caught:
        parts.collector.collect(parts.policy, parts.rollouts)
    assert caught.traceback[-1].name == "fetch"
    parts.collector.close()


@pytest.mark.parametrize(
    ("skill", "sensors", "settings"),
    [
        ("pick", "full", {"clutter": 5.0, "speed": 0.02}),
        ("pick", "teacher", {"way": 6.0, "hand": 4.0, "grip": 0.1, "near": 5.0}),
        ("place", "teacher", {"way": 6.0, "hand": 4.0, "grip": 0.1}),
        ("open_drawer", "fetch", {"joints": 2.0, "wrong_stop": 1.0}),
        ("open_fridge", "teacher", {"way": 6.0, "hand": 4.0}),
        ("navigate", "fetch", {"force": 0.01}),
        ("navigate", "teacher", {"way": 2.0}),
    ],
)
def test_steps_equal_those_of_a_skill_batch(
    skill: str, sensors: str, settings: dict[str, float]
) -> None:
    given: dict[str, Any] = {"depth": 16, "horizon": 4, "settings": settings}
    made = factory(skill, count=2, sensors=sensors, critic=True, **given)
    env = made.on_device(range(3))
    options = made.options
    batch = SkillBatch(options, options.simulator(3))
    rng, source = np.random.default_rng(0), options.source()
    shown = env.reset()
    for _ in range(2):
        starts = [source[env._index[place]] for place in env._start.tolist()]
        wanted = batch.reset(range(3), starts)
        total = np.zeros(3)
        for step in range(4):
            for name, values in wanted.items():
                found = shown[name].numpy()
                assert found.dtype == np.float32
                np.testing.assert_allclose(found, values, atol=1e-5, err_msg=f"{step} {name}")
            actions = rng.uniform(-1, 1, (3, act.SIZE)).astype(np.float32)
            actions[:, act.STOP] = -1.0
            if skill == "place":
                actions[:, act.GRIP] = 1.0  # a dropped object would end the episode
            outcome = (stepped := batch.step(range(3), actions)).outcome
            done = env.step(torch.from_numpy(actions))
            np.testing.assert_allclose(done.reward.numpy(), outcome.reward, atol=1e-4)
            np.testing.assert_array_equal(done.terminated.numpy(), outcome.terminated)
            np.testing.assert_array_equal(done.truncated.numpy(), outcome.truncated)
            total += outcome.reward
            wanted, shown = stepped.observation, done.observation
            if outcome.terminated.any():
                pytest.fail("random actions must not end an episode before its horizon")
        assert done.final is not None
        np.testing.assert_allclose(done.final["state"].numpy(), wanted["state"], atol=1e-5)
        episodes = env.episodes()
        assert [(one.env, one.steps, one.ended_by) for one in episodes] == [
            (home, 4, "timeout") for home in range(3)
        ]
        np.testing.assert_allclose([one.reward for one in episodes], total, atol=1e-3)
        assert set(episodes[0].terms) == set(outcome.reward_terms)
    env.close()


def test_start_states_are_drawn_by_their_weights() -> None:
    env = factory("navigate", count=6, sensors="fetch", horizon=1).on_device(range(4))
    assert len({*env._index}) == 6
    weights = np.array([1.0, 0.0])
    env.weigh(weights)
    env.reset()
    drawn: list[int] = []
    for _ in range(5):
        env.step(torch.zeros(4, act.SIZE))
        drawn += [one.start_group for one in env.episodes()]
    assert {*drawn[4:]} == {0}
    first, again = ([int(e._start.sum()) for _ in range(4) if e.reset()] for e in (env, env))
    assert first != again
    env.close()


def test_parts_of_a_mixture_keep_their_shares_when_weighted() -> None:
    made = factory("pick", count=40, sensors="fetch", starts="own:0.5,near:1.4:0.5")
    env = made.on_device(range(1))
    parts = np.array(env._group) // 2  # two groups in each part
    shares = np.bincount(parts) / 40
    assert (shares > 0.2).all()
    env.weigh(np.array([0.02, 0.04, 0.9, 0.1]))
    weights = env._weights.numpy() / 40
    np.testing.assert_allclose(np.bincount(parts, weights), shares, rtol=1e-5)
    groups = np.bincount(env._group, weights)
    np.testing.assert_allclose(groups[[1, 2]] / groups[[0, 3]], [2.0, 9.0], rtol=1e-5)
    env.close()


def test_a_reset_forgets_unfinished_episodes() -> None:
    env = factory("pick", count=1, sensors="fetch", horizon=3).on_device(range(1))
    action = torch.zeros(1, act.SIZE)
    env.reset()
    env.step(action)
    env.reset()
    rewards = [float(env.step(action).reward) for _ in range(3)]
    assert env.episodes()[0].reward == pytest.approx(sum(rewards), abs=1e-6)
    env.close()


def test_fewer_different_start_states_than_requested_are_enough() -> None:
    source = factory("pick").options.source()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source), "draw", lambda self, rng: (int(rng.integers(3)), self[0]))
        drawn = device.draw(source, 50, np.random.default_rng(0))
    assert sorted(index for index, _ in drawn) == [0, 1, 2]


@pytest.mark.parametrize(
    ("skill", "given", "message"),
    [
        ("pointnav", {}, "preset.collector: 'device' measures no paths on a map, which pointnav"),
        ("navigate", {"sensors": "mapping"}, "sensors: .* not measure explored_way; nearest: fet"),
        ("pick", {"height_map": True, "depth": 32}, "height_map: .* nearest: false"),
        ("pick", {"cameras": "head_rgb:32"}, "cameras: .* has no head_rgb; nearest: head_depth"),
    ],
)
def test_what_the_device_does_not_have_is_refused(
    skill: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        factory(skill, **given).on_device(range(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["delay=true"], "delay: collector=device delays no observations; nearest: false"),
        (["preset.retry=0.2"], "preset.retry: collector=device draws at random; nearest: 0"),
        (["preset.object_margin=0.02"], "preset.object_margin: collector=device adds no margin"),
    ],
)
def test_trainings_that_the_device_cannot_run_are_refused_before_episodes_are_generated(
    changes: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingVecEnvFactory, "prepare", lambda *a: pytest.fail("too late"))
    words = ["skill=pick", "sensors=fetch", "preset.collector=device", *changes]
    settings = config.load(TrainingSettings, config.parse(words))
    with pytest.raises(UserError, match=message):
        make(settings)


def test_recorded_start_states_are_refused() -> None:
    options = EnvOptions.of("pick")
    simulator = options.simulator(1)
    start = options.source()[0]
    simulator.reset([0], [start.episode])
    recorded = dataclasses.replace(start, snapshot=simulator.snapshot(0))
    made = TrainingVecEnvFactory(EnvOptions.of("pick", starts=[recorded]))
    with pytest.raises(UserError, match=r"starts: .* recorded states; nearest: own"):
        made.on_device(range(2))
    simulator.close()


@pytest.mark.parametrize("skill", ["pick", "navigate", "close_fridge"])
def test_readings_of_maps_equal_those_on_the_processor_anywhere(skill: str) -> None:
    made = factory(skill, count=2, sensors="teacher", settings={"way": 1.0, "hand": 1.0})
    env = made.on_device(range(2))
    env.reset()
    options, count = made.options, 400
    starts = [made.options.source()[env._index[place]] for place in env._start.tolist()]
    simulator = options.simulator(2)
    simulator.reset(range(2), [start.episode for start in starts])
    world = simulator.state(range(2))
    goals = Goals.of([start.goal for start in starts])
    task_state = task.begin(env._skill, goals, world, options.thresholds)
    maps = MapSensors(env._skill, options.inputs.sensors, 2, options.thresholds, True, True)
    maps.begin(range(2), [start.episode for start in starts], task_state, world)
    assert env._maps._way is not None and env._maps._hand is not None
    rng, rows = np.random.default_rng(3), np.arange(count) % 2
    base = np.column_stack([rng.uniform(-8, 8, (count, 2)), rng.uniform(-4, 4, count)])
    cup = rng.uniform(-8, 8, (count, 3))  # mostly off the maps
    near = np.asarray(env._skill.destination(task_state))[rows]
    base[::2, :2] = near[::2, :2] + rng.normal(0, 1.0, (count, 2))[::2]
    cup[::2, : near.shape[1]] = near[::2] + rng.normal(0, 0.4, near.shape)[::2]
    cup[5], base[6, 0] = np.nan, np.inf
    place = env._start[torch.from_numpy(rows)]
    for row in range(count):
        one = dataclasses.replace(
            world.row(int(rows[row])), base=base[row : row + 1], ee_pos=cup[row : row + 1]
        )
        wanted = maps.read([int(rows[row])], one)
        there = dataclasses.replace(
            one,
            base=torch.from_numpy(one.base).float(),
            ee_pos=torch.from_numpy(one.ee_pos).float(),
        )
        start = place[row : row + 1]
        way = env._maps._way.ahead(start, there.base).numpy()
        np.testing.assert_allclose(way, wanted.way, atol=1e-3, err_msg=str(row))
        hand = env._maps._hand.ahead(start, there).numpy()
        np.testing.assert_allclose(hand[:, 0], wanted.hand[:, 0], atol=1e-3, err_msg=str(row))
    env.close()
    simulator.close()
