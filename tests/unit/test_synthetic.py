import json
import pickle
import time

import numpy as np
import pytest
from toy_vec_env import ToyVecEnvFactory

from tpsrl.errors import UserError
from tpsrl.rl.bench import synthetic_env as core
from tpsrl.rl.bench.synthetic import SPEC, SyntheticVecEnv, SyntheticVecEnvFactory
from tpsrl.rl.envs.vec_env import EpisodeStats, StepBatch

FACTORY = SyntheticVecEnvFactory("none", seed=3)


def actions(step: int, env: int) -> np.ndarray:
    return np.random.default_rng((step, env)).uniform(-1, 1, core.ACTIONS).astype(np.float32)


def walk(made: SyntheticVecEnv, names: list[int], first: int, last: int) -> list[StepBatch]:
    """Steps all environments of a process; `names` are their numbers across processes."""
    rows = range(len(names))
    return [
        made.step(rows, np.stack([actions(step, name) for name in names]))
        for step in range(first, last)
    ]


def assert_same(one: StepBatch, other: StepBatch, row: int) -> None:
    """Asserts that the only row of `one` equals a row of `other`."""
    for name in SPEC.observations:
        np.testing.assert_array_equal(one.observation[name][0], other.observation[name][row])
    for name in ("reward", "terminated", "truncated"):
        assert getattr(one, name)[0] == getattr(other, name)[row]
    if one.truncated[0]:
        assert one.final is not None and other.final is not None
        at = int(other.truncated[:row].sum())
        np.testing.assert_array_equal(one.final["depth"][0], other.final["depth"][at])


def test_an_environment_does_not_depend_on_its_group() -> None:
    names = [4, 0, 7]
    together = FACTORY(names)
    first = together.reset(range(3))
    done = walk(together, names, 0, 300)
    for row, name in enumerate(names):
        alone = FACTORY([name])
        np.testing.assert_array_equal(alone.reset([0])["depth"][0], first["depth"][row])
        for one, other in zip(walk(alone, [name], 0, 300), done, strict=True):
            assert_same(one, other, row)
        assert alone.drawn_s[0] == together.drawn_s[row]


def test_observations_match_the_spec_and_differ() -> None:
    made = FACTORY(range(3))
    shown = [made.reset(range(3))] + [done.observation for done in walk(made, [0, 1, 2], 0, 5)]
    for each in shown:
        for name, shape in SPEC.observations.items():
            assert each[name].shape == (3, *shape) and each[name].dtype == np.float32
        assert each["depth"].min() >= 0 and each["depth"].max() <= 1
    images = {each["depth"][row].tobytes() for each in shown for row in range(3)}
    assert len(images) == 18
    assert SPEC.mask == (True,) * 10
    for name, values in made.observe([2, 0]).items():
        np.testing.assert_array_equal(values, shown[-1][name][[2, 0]])


def test_the_state_contains_the_best_action() -> None:
    env = core.SyntheticEnv(0, variant="none")
    best = env.reset()["state"][: core.ACTIONS]
    shown, reward, _, _ = env.step(best)
    assert reward == 1.0
    assert env.step(-shown["state"][: core.ACTIONS])[1] < 0.5


@pytest.mark.slow
def test_episodes_have_50_to_200_steps_and_end_in_success_or_timeout() -> None:
    made = FACTORY(range(4))
    made.reset(range(4))
    done = walk(made, [0, 1, 2, 3], 0, 2500)
    episodes: list[EpisodeStats] = [episode for each in done for episode in each.episodes]
    assert len(episodes) > 50
    assert all(50 <= episode.steps <= 200 for episode in episodes)
    assert {episode.ended_by for episode in episodes} == {"success", "timeout"}
    terminated = sum(int(each.terminated.sum()) for each in done)
    truncated = sum(int(each.truncated.sum()) for each in done)
    assert terminated == sum(episode.success for episode in episodes)
    assert truncated == len(episodes) - terminated
    for name in range(4):
        own = [episode for episode in episodes if episode.env == name]
        assert [episode.start_index % 10_000 for episode in own] == [name] * len(own)
        assert [episode.start_index // 10_000 for episode in own] == list(range(len(own)))
        rewards = np.array([each.reward[name] for each in done])
        first = own[0].steps
        assert own[0].reward == pytest.approx(float(rewards[:first].sum()), rel=1e-5)


def test_a_restored_environment_continues_exactly() -> None:
    made = FACTORY([5, 6])
    made.reset([0, 1])
    walk(made, [5, 6], 0, 130)
    arrays, note = made.snapshot(1)
    later = walk(made, [5, 6], 130, 500)
    assert sum(len(each.episodes) for each in later) > 2
    other = FACTORY([6])
    other.restore(0, arrays, json.loads(json.dumps(note)))
    for one, all_of_them in zip(walk(other, [6], 130, 500), later, strict=True):
        assert_same(one, all_of_them, 1)
        theirs = [episode for episode in all_of_them.episodes if episode.env == 6]
        assert one.episodes == theirs
    assert other.drawn_s[0] == made.drawn_s[1]


def test_reseeded_environments_draw_other_episodes() -> None:
    first = FACTORY([1]).reset([0])
    made, again = FACTORY([1]), FACTORY([1])
    made.reseed(1)
    again.reseed(1)
    second = made.reset([0])
    assert not np.array_equal(first["state"], second["state"])
    np.testing.assert_array_equal(again.reset([0])["state"], second["state"])
    assert made.start_index(0) != 1


def test_avoided_starts_are_skipped() -> None:
    made = FACTORY([1])
    made.avoid([1, 20_001])
    made.reset([0])
    done = walk(made, [1], 0, 500)
    starts = [episode.start_index for each in done for episode in each.episodes]
    assert starts[:2] == [10_001, 30_001]
    lengths = [episode.steps for each in done for episode in each.episodes]
    timing = core.Timing(1, FACTORY.seed)
    timing.draw()
    timing.draw()
    assert lengths[0] == len(timing.step_s)


def test_an_invalid_snapshot_is_refused_and_changes_nothing() -> None:
    made, toys = FACTORY([0]), ToyVecEnvFactory()([0])
    shown = made.reset([0])
    with pytest.raises(UserError, match="synthetic"):
        made.restore(0, *toys.snapshot(0))
    arrays, note = made.snapshot(0)
    with pytest.raises(UserError, match="shapes"):
        made.restore(0, {**arrays, "state": np.zeros(3)}, note)
    np.testing.assert_array_equal(made.observe([0])["state"], shown["state"])


def test_durations_equal_those_of_the_replay() -> None:
    made = FACTORY([2])
    made.reset([0])
    drawn = [made.drawn_s[0]]
    for step in range(400):
        walk(made, [2], step, step + 1)
        drawn.append(made.drawn_s[0])
    step_s, reset_s = core.replay(2, seed=3, steps=400)
    assert drawn[0] == core.RESET_S
    np.testing.assert_allclose(np.diff(drawn), step_s + reset_s, atol=1e-9)


def test_durations_have_the_documented_distribution() -> None:
    rows = [core.replay(env, seed=1, steps=12_500) for env in range(16)]
    step_s = np.concatenate([row[0] for row in rows])
    reset_s = np.concatenate([row[1] for row in rows])
    assert 50 * np.median(step_s) == pytest.approx(core.RESET_S, rel=0.05)
    assert 1 / 201 < (reset_s > 0).mean() < 1 / 49
    assert 0.028 < (step_s + reset_s).mean() < 0.034
    assert core.ceiling(16, seed=1) == pytest.approx(500, rel=0.03)
    timing, factors = core.Timing(0, 1), []
    for _ in range(2000):
        timing.draw()
        factors.append(timing.factor)
        assert 50 <= len(timing.step_s) <= 200
    assert 1 <= min(factors) < 1.1 and 7.5 < max(factors) <= 8
    assert np.median(factors) == pytest.approx(np.sqrt(8), rel=0.1)
    assert json.loads(json.dumps(core.describe())) == core.describe()


@pytest.mark.parametrize("variant", ["waiting", "busy"])
def test_a_step_takes_its_drawn_duration(variant: str) -> None:
    env = core.SyntheticEnv(0, variant=variant)
    env.timing.reset_s = 0.01
    clock = time.perf_counter if variant == "waiting" else time.thread_time
    begun = clock()
    env.reset()
    for _ in range(3):
        env.step(np.zeros(core.ACTIONS))
    assert clock() - begun >= env.drawn_s > 0.02


def test_the_factory_can_be_sent_to_a_process() -> None:
    assert pickle.loads(pickle.dumps(FACTORY)) == FACTORY
    made = FACTORY([0])
    assert made.seconds == {"rendering": 0.0, "resets": 0.0}
    with pytest.raises(UserError, match="did you mean 'waiting'"):
        SyntheticVecEnvFactory("wating")([0])


def test_stepping_without_a_reset_is_an_error() -> None:
    env = core.SyntheticEnv(0, variant="none")
    with pytest.raises(RuntimeError):
        env.step(np.zeros(core.ACTIONS))
    env.reset()
    over = False
    while not over:
        _, _, terminated, truncated = env.step(np.zeros(core.ACTIONS))
        over = terminated or truncated
    with pytest.raises(RuntimeError):
        env.step(np.zeros(core.ACTIONS))
