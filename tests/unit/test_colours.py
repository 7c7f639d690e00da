"""Random changes of colour pictures during training."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from toy_vec_env import SPEC, ToyVecEnv, ToyVecEnvFactory

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.envs.colours import ColourChanges, ColouredVecEnv, ColouredVecEnvFactory
from tpsrl.rl.envs.vec_env import Observation
from tpsrl.training import loading

N, SHAPE = 4, (6, 5, 3)
ACTIONS = np.ones((N, 3))
JITTER, NOISE = ColourChanges(jitter=0.3), ColourChanges(noise=0.05)
BOTH = ColourChanges(jitter=0.3, noise=0.05)


class PaintedVecEnv(ToyVecEnv):
    """Toy environments with a colour picture of values between 100 and 149."""

    def __init__(self, env_ids: Sequence[int]) -> None:
        super().__init__(ToyVecEnvFactory(), env_ids)
        shapes = SPEC.observations | {"head_rgb": SHAPE}
        self.spec = dataclasses.replace(SPEC, observations=shapes)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        shown = super().observe(env_ids)
        values = 100 + np.arange(np.prod(SHAPE)).reshape(SHAPE) % 40
        steps = shown["state"][:, 0].astype(np.int64) % 10
        return shown | {"head_rgb": (values + steps[:, None, None, None]).astype(np.uint8)}


def painted(changes: ColourChanges, env_ids: Sequence[int] = range(N)) -> ColouredVecEnv:
    return ColouredVecEnvFactory(PaintedVecEnv, changes, seed=1)(env_ids)


def test_jitter_is_one_affine_change_of_each_channel_per_episode() -> None:
    changed, plain = painted(JITTER), PaintedVecEnv(range(N))
    shown, seen = changed.reset(range(N)), plain.reset(range(N))
    drawn: list[list[tuple[float, float]]] = [[] for _ in range(N)]
    begun = np.ones(N, bool)
    for _ in range(12):
        for env in range(N):
            x, y = (one["head_rgb"][env].reshape(-1, 3).astype(float) for one in (seen, shown))
            gain, offset = zip(*(np.polyfit(x[:, c], y[:, c], 1) for c in range(3)), strict=True)
            rounding = y - (np.array(gain) * x + np.array(offset))
            assert np.abs(rounding).max() < 1.0 and 0.4 < min(gain) <= max(gain) < 1.8
            if begun[env]:
                drawn[env].append((gain[0], offset[0]))
            else:
                np.testing.assert_allclose(
                    (gain[0], offset[0] / 99),
                    (drawn[env][-1][0], drawn[env][-1][1] / 99),
                    atol=0.06,
                )
        one, other = plain.step(range(N), ACTIONS), changed.step(range(N), ACTIONS)
        begun = one.terminated | one.truncated
        shown, seen = other.observation, one.observation
    gains = [round(gain, 3) for of_env in drawn for gain, _ in of_env]
    assert len(set(gains)) == len(gains) > 2 * N


def test_noise_has_the_given_deviation_and_differs_in_every_step() -> None:
    changed, plain = painted(NOISE), PaintedVecEnv(range(N))
    errors = [changed.reset(range(N))["head_rgb"] - plain.reset(range(N))["head_rgb"].astype(float)]
    for _ in range(40):
        one, other = plain.step(range(N), ACTIONS), changed.step(range(N), ACTIONS)
        errors.append(
            other.observation["head_rgb"].astype(float) - one.observation["head_rgb"].astype(float)
        )
    assert np.std(errors) == pytest.approx(0.05 * 255.0, rel=0.05)
    assert abs(np.mean(errors)) < 0.5
    assert not np.array_equal(errors[0], errors[1])


def test_other_observations_and_given_arrays_stay_as_they_are() -> None:
    changed, plain = painted(BOTH), PaintedVecEnv(range(N))
    shown, seen = changed.reset(range(N)), plain.reset(range(N))
    for _ in range(10):
        assert shown.keys() == seen.keys()
        for name in ("state", "depth"):
            np.testing.assert_array_equal(shown[name], seen[name])
        np.testing.assert_array_equal(changed.observe([2])["head_rgb"][0], shown["head_rgb"][2])
        one, other = plain.step(range(N), ACTIONS), changed.step(range(N), ACTIONS)
        assert (one.final is None) == (other.final is None)
        if other.final is not None and one.final is not None:
            assert other.final["head_rgb"].shape == one.final["head_rgb"].shape
            np.testing.assert_array_equal(other.final["state"], one.final["state"])
        shown, seen = other.observation, one.observation


def test_pictures_of_an_environment_do_not_depend_on_the_others() -> None:
    together, alone = painted(BOTH), painted(BOTH, [2])
    shown, own = together.reset(range(N)), alone.reset([0])
    for _ in range(9):
        np.testing.assert_array_equal(own["head_rgb"][0], shown["head_rgb"][2])
        shown = together.step(range(N), ACTIONS).observation
        own = alone.step([0], ACTIONS[:1]).observation


def test_an_environment_resumes_exactly_from_a_snapshot() -> None:
    first, second = painted(BOTH), painted(BOTH)
    first.reset(range(N))
    for _ in range(5):
        first.step(range(N), ACTIONS)
    for env in range(N):
        second.restore(env, *first.snapshot(env))
    np.testing.assert_array_equal(
        second.observe(range(N))["head_rgb"], first.observe(range(N))["head_rgb"]
    )
    for _ in range(9):
        one, two = first.step(range(N), ACTIONS), second.step(range(N), ACTIONS)
        np.testing.assert_array_equal(one.observation["head_rgb"], two.observation["head_rgb"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colours/gain", np.full(3, np.nan, np.float32)),
        ("colours/offset", np.zeros(7, np.float32)),
        ("coloured/head_rgb", np.zeros((2, 2, 3), np.uint8)),
        ("colours/gain", None),
    ],
)
def test_a_damaged_snapshot_is_refused(name: str, value: np.ndarray | None) -> None:
    env = painted(BOTH)
    env.reset(range(N))
    arrays, note = env.snapshot(0)
    damaged = {key: values for key, values in arrays.items() if key != name}
    with pytest.raises(UserError, match=r"^snapshot: "):
        env.restore(0, damaged if value is None else damaged | {name: value}, note)


@pytest.mark.parametrize(
    ("begun", "given", "message"),
    [
        ("colour_jitter=0.2", "colour_jitter=0", "begun with random colours.*nearest: 0.2"),
        ("colour_jitter=0", "colour_noise=0.1", "begun without random colours.*nearest: 0"),
    ],
)
def test_a_resumed_training_keeps_random_colours_on_or_off(
    tmp_path: Path, begun: str, given: str, message: str
) -> None:
    words = ["skill=pick", "cameras=head_rgb:64"]
    settings = loading.training(config.parse([*words, begun]))
    (tmp_path / "config.yaml").write_text(config.to_yaml(settings))
    resumed = loading.training(config.parse([f"resume={tmp_path}"]))
    assert resumed.colour_jitter == settings.colour_jitter
    key = given.partition("=")[0]
    with pytest.raises(UserError, match=f"^{key}: .*{message}"):
        loading.training(config.parse([f"resume={tmp_path}", given]))
