"""Noise on the actions of policies whose robot is stuck."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiny_policies

from skills.policies import learned
from skills.policies.learned import NetworkActor
from skills.policies.stuck import LENGTH, WINDOW, StuckNoise
from tpsrl.errors import UserError
from tpsrl.world import action as act

LAYOUT = {"velocity": slice(1, 4), "arm": slice(4, 11)}  # behind one number of another sensor
SIZE = 11


def still(homes: int = 1) -> np.ndarray:
    return np.zeros((homes, SIZE))


def steps_with_noise(noise: StuckNoise, states: list[np.ndarray]) -> list[list[int]]:
    """Returns for each home the numbers of the steps with noise."""
    drawn = np.array([np.abs(noise.draw(state)).sum(1) > 0.0 for state in states])
    return [np.flatnonzero(home).tolist() for home in drawn.T]


def test_noise_begins_after_the_window_and_ends() -> None:
    noise = StuckNoise(0.5, LAYOUT, 1, seed=0)
    (steps,) = steps_with_noise(noise, [still()] * (2 * WINDOW + LENGTH))
    first = WINDOW - 1
    # Noise that did not help is repeated after another window.
    assert steps[:LENGTH] == list(range(first, first + LENGTH))
    assert steps[LENGTH:] == list(range(first + LENGTH + WINDOW - 1, 2 * WINDOW + LENGTH))


@pytest.mark.parametrize("column", [1, 3, 5])  # drives, turns, moves a joint
def test_a_robot_that_moves_gets_no_noise(column: int) -> None:
    noise = StuckNoise(0.5, LAYOUT, 2, seed=0)
    states = [still(2) for _ in range(4 * WINDOW)]
    for step, state in enumerate(states):
        state[1, column] = 0.02 * step if column == 5 else 0.6
    stuck, moves = steps_with_noise(noise, states)
    assert stuck and not moves


def test_a_new_episode_starts_without_noise() -> None:
    noise = StuckNoise(0.5, LAYOUT, 2, seed=0)
    for _ in range(WINDOW + 3):
        noise.draw(still(2))
    noise.begin(np.array([True, False]))
    drawn = noise.draw(still(2))
    assert not drawn[0].any() and drawn[1].any()


def test_noise_moves_arm_and_base_alone_with_the_given_deviation() -> None:
    noise = StuckNoise(0.5, LAYOUT, 4000, seed=0)
    drawn = [noise.draw(still(4000)) for _ in range(WINDOW + LENGTH - 1)][-1]
    moves = np.r_[act.ARM, act.BASE]
    assert not np.delete(drawn, moves, axis=1).any()
    # Not yet stationary: 1 - CORRELATION^(2 LENGTH) is 0.995.
    np.testing.assert_allclose(drawn[:, moves].std(0), 0.5, rtol=0.05)


def test_a_network_gets_noise_in_the_parts_that_it_uses(tmp_path: Path) -> None:
    made, deploy = tiny_policies.policy("navigate", "fetch")
    path = tiny_policies.save(tmp_path / "a.safetensors", made, {**deploy, "stuck_noise": 1.0})
    network = learned.load("navigate", path)
    plain = learned.load("navigate", tiny_policies.save(tmp_path / "b.safetensors", made, deploy))
    assert network.stuck_noise == 1.0 and plain.stuck_noise == 0.0
    assert network.digest != plain.digest
    assert learned.about("navigate", path)["stuck_noise"] == 1.0
    seen = {"state": np.zeros((1, network.inputs.size), np.float32)}
    actors = [NetworkActor(each, False, 1, seed=0) for each in (network, plain)]
    actions = np.array([[actor.act(seen)[0] for actor in actors] for _ in range(WINDOW + 2)])
    same = (actions[:, 0] == actions[:, 1]).all(1)
    assert same[: WINDOW - 1].all() and not same[WINDOW - 1 :].any()
    first = actions[WINDOW - 1]  # later the network also observes other previous actions
    assert (first[0] != first[1]).nonzero()[0].tolist() == [8, 9]  # the base; the arm is masked


def test_noise_without_the_needed_sensor_is_refused(tmp_path: Path) -> None:
    made, deploy = tiny_policies.policy("pick", "habitat")
    path = tiny_policies.save(tmp_path / "a.safetensors", made, {**deploy, "stuck_noise": 1.0})
    with pytest.raises(UserError, match="has stuck_noise, but not the sensor velocity"):
        learned.load("pick", path)


def test_the_default_is_no_noise_and_is_not_written() -> None:
    _, deploy = tiny_policies.policy("navigate", "fetch")
    assert "stuck_noise" not in deploy
    assert dataclasses.fields(learned.deployed.Deployment)[-1].default == 0.0
