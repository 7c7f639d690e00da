"""Behaviour cloning: batches of episodes, their loss, and fitting a policy."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from tpsrl.errors import RunError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.imitation.cloner import Cloner
from tpsrl.rl.imitation.dataset import DEPTH_UNIT, Demonstration, batches, collate, quantised
from tpsrl.rl.imitation.loss import _TURNING, cloning_loss
from tpsrl.rl.imitation.settings import CloningSettings
from tpsrl.rl.policy.actor_critic import MAGNIFIED, ActorCritic, PolicyStep
from tpsrl.rl.policy.settings import PolicySettings

MASK = (True, True, True, False, True)  # two amounts, a switch, a masked dimension, a switch
ACTIONS, STATE, SIDE = len(MASK), 4, 32
SWITCHES = (2, 4)
LENGTHS = (3, 7, 1, 4)
SPEC = EnvSpec({"state": (STATE,), "depth": (SIDE, SIDE)}, MASK, rays=(1, 3))
SMALL = PolicySettings(
    encoder="state", state_width=8, lstm_layers=1, lstm_width=6, previous_action=False
)
CAMERA = dataclasses.replace(SMALL, encoder="se_resnet9", encoder_width=4, visual_width=6)


def policy(settings: PolicySettings = SMALL, seed: int = 0) -> ActorCritic:
    """Returns a policy whose mean head is scaled up, so that its means differ between inputs."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    made = ActorCritic(SPEC, settings)
    with torch.no_grad():
        made.action_head.mean.weight.mul_(50.0)
    return made


def episode(length: int, rng: np.random.Generator) -> Demonstration:
    """Returns random observations and labels, every third of which is invalid."""
    state = rng.normal(size=(length, STATE)).astype(np.float32)
    depth = quantised(rng.random((length, SIDE, SIDE)))
    label = rng.uniform(-1.2, 1.2, (length, ACTIONS)).astype(np.float32)
    valid = np.arange(length) % 3 != 1
    return Demonstration({"state": state, "depth": depth}, label, valid, 0.5 * label)


def episodes(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[Demonstration]:
    rng = np.random.default_rng(seed)
    return [episode(length, rng) for length in lengths]


def packed_rows(lengths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Returns (episode, step) of each row: by step, within a step the longest episode first."""
    longest_first = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [
        (number, step)
        for step in range(max(lengths))
        for number in longest_first
        if step < lengths[number]
    ]


# Batches.


def test_a_batch_has_every_row_of_its_episodes_in_packed_order() -> None:
    given = episodes()
    batch = collate(given, memory_size=5)
    expected = packed_rows(LENGTHS)
    assert len(batch.label) == sum(LENGTHS) == len(expected)
    for row, (number, step) in enumerate(expected):
        one = given[number]
        np.testing.assert_array_equal(
            batch.observation["state"][row], one.observation["state"][step]
        )
        depth = one.observation["depth"][step].astype(np.float32) * np.float32(DEPTH_UNIT)
        np.testing.assert_array_equal(batch.observation["depth"][row], depth)
        np.testing.assert_array_equal(batch.label[row], one.label[step])
        assert float(batch.weight[row]) == float(one.valid[step])
        done = one.action[step - 1] if step else one.label[0]
        np.testing.assert_array_equal(batch.previous[row], done)
    assert batch.pack.batch_sizes.tolist() == [4, 3, 3, 2, 1, 1, 1]
    assert batch.pack.memory.shape == (4, 5) and not batch.pack.memory.any()


@pytest.mark.parametrize("settings", [SMALL, CAMERA], ids=["state", "camera"])
def test_evaluating_a_batch_equals_acting_through_its_episodes_step_by_step(
    settings: PolicySettings,
) -> None:
    given, made = episodes(), policy(settings)
    batch = collate(given, made.memory_size)
    none = torch.zeros(1, ACTIONS)
    with torch.no_grad():
        together = made.evaluate(batch.observation, torch.zeros_like(batch.label), batch.pack)
        alone: dict[tuple[int, int], torch.Tensor] = {}
        for number, one in enumerate(given):
            memory = made.initial_memory(1)
            depth = torch.from_numpy(one.observation["depth"] * np.float32(DEPTH_UNIT))
            for step in range(len(one)):
                shown = {
                    "state": torch.from_numpy(one.observation["state"][step : step + 1]),
                    "depth": depth[step : step + 1],
                }
                done = made.act(shown, none, memory, torch.tensor([step == 0]))
                assert done.memory is not None
                memory, alone[number, step] = done.memory, done.mean[0]
    expected = torch.stack([alone[row] for row in packed_rows(LENGTHS)])
    torch.testing.assert_close(together.mean, expected, rtol=1e-4, atol=1e-5)
    assert float(expected.std()) > 0.01


def test_batches_have_every_episode_once_and_close_when_they_reach_the_frames() -> None:
    lengths = (5, 5, 5, 5, 5, 5, 5)
    given = episodes(lengths)
    orders = []
    for seed in (0, 0, 1):
        found = list(batches(given, 12, 3, torch.Generator().manual_seed(seed)))
        assert [len(batch.label) for batch in found] == [15, 15, 5]
        orders.append(torch.cat([batch.label for batch in found]))
    assert torch.equal(orders[0], orders[1]) and not torch.equal(orders[0], orders[2])
    everything = np.concatenate([one.label for one in given])
    for order in orders:
        np.testing.assert_array_equal(np.sort(order.numpy(), 0), np.sort(everything, 0))


def test_quantised_depth_is_accurate_to_half_a_unit() -> None:
    depth = np.concatenate([np.linspace(0.0, 1.0, 9_999), [0.0, 1.0]]).astype(np.float32)
    kept = quantised(depth)
    assert kept.dtype == np.uint16
    back = kept.astype(np.float32) * np.float32(DEPTH_UNIT)
    assert np.abs(back.astype(np.float64) - depth).max() <= 0.5 * DEPTH_UNIT + 1e-7
    assert (back[-2], back[-1]) == (0.0, pytest.approx(1.0))


# Loss.


def switches() -> torch.Tensor:
    chosen = torch.zeros(ACTIONS, dtype=torch.bool)
    chosen[list(SWITCHES)] = True
    return chosen


class Saying:
    """Policy with given means, one row for each row of a batch."""

    def __init__(self, mean: torch.Tensor) -> None:
        self.mean, self.mask = mean, torch.tensor(MASK)

    def evaluate(self, observation: object, previous: torch.Tensor, pack: object) -> PolicyStep:
        assert not previous.any()
        none = torch.zeros(len(self.mean))
        return PolicyStep(self.mean, torch.ones_like(self.mean), none, None, self.mean)


def plain_loss(
    mean: np.ndarray, given: list[Demonstration], switch_weight: float
) -> tuple[float, float, float]:
    """Computes the loss, its distance and its log loss of switches, in plain loops."""
    rows = packed_rows(tuple(map(len, given)))
    label = [given[number].label[step] for number, step in rows]
    counted = [row for row, (number, step) in enumerate(rows) if given[number].valid[step]]
    amounts = [part for part in range(ACTIONS) if MASK[part] and part not in SWITCHES]
    distance = surprise = 0.0
    for row in counted:
        for part in amounts:
            off = abs(mean[row, part] - min(max(label[row][part], -1.0), 1.0))
            distance += (off**2 / 0.2 if off < 0.1 else off - 0.05) / len(amounts)
        for part in SWITCHES:
            number, step = rows[row]
            on = label[row][part] >= 0.0
            before = given[number].action[step - 1][part] >= 0.0 if step else on
            chance = 0.5 + 0.5 * mean[row, part]
            chance = min(max(chance if on else 1.0 - chance, 1e-4), 1.0 - 1e-4)
            surprise -= (_TURNING if on != before else 1.0) * math.log(chance) / len(SWITCHES)
    distance, surprise = distance / len(counted), surprise / len(counted)
    return distance + switch_weight * surprise, distance, surprise


def test_the_loss_equals_that_of_a_plain_computation() -> None:
    given = episodes((9, 11), seed=3)
    for one in given:  # in some steps the action differs from the label
        one.action[::4, SWITCHES[0]] *= -1.0
    mean = np.random.default_rng(4).uniform(-1.0, 1.0, (20, ACTIONS)).astype(np.float32)
    mean[3, SWITCHES[0]], mean[5, SWITCHES[1]] = 1.0, -1.0  # certain predictions
    batch, saying = collate(given, 0), Saying(torch.from_numpy(mean))
    loss, parts = cloning_loss(saying, batch, switches(), 0.3)  # type: ignore[arg-type]
    found = float(loss), float(parts["distance"]), float(parts["switches"])
    assert found == pytest.approx(plain_loss(mean, given, 0.3), rel=1e-4)


def test_a_scale_multiplies_the_errors_of_its_dimension_of_the_action() -> None:
    one = episode(1, np.random.default_rng(0))
    one.label[:] = 0.0
    mean = torch.zeros(1, ACTIONS)
    mean[0, 0] = 0.5
    scale = torch.ones(ACTIONS)
    scale[0] = 3.0
    batch = collate([one], 0)
    plain, scaled = (
        float(cloning_loss(Saying(mean), batch, switches(), 0.0, by)[0])  # type: ignore[arg-type]
        for by in (None, scale)
    )
    amounts = sum(MASK[part] and part not in SWITCHES for part in range(ACTIONS))
    assert plain == pytest.approx((0.5 - 0.05) / amounts)
    assert scaled == pytest.approx((1.5 - 0.05) / amounts)


def test_a_label_that_turns_a_switch_has_more_weight_than_one_that_does_not() -> None:
    surprises = []
    for before in (1.0, -1.0):
        one = episode(3, np.random.default_rng(0))
        one.valid[:] = [False, True, False]
        one.label[1, list(SWITCHES)] = 1.0
        one.action[0, list(SWITCHES)] = before
        saying = Saying(torch.zeros(3, ACTIONS))
        _, parts = cloning_loss(saying, collate([one], 0), switches())  # type: ignore[arg-type]
        surprises.append(float(parts["switches"]))
    assert surprises == pytest.approx([math.log(2.0), _TURNING * math.log(2.0)])


def test_invalid_labels_change_neither_loss_nor_gradient() -> None:
    made, given = policy(), episodes()
    found = []
    for nonsense in (0.0, 0.9):
        for one in given:
            one.label[~one.valid] = nonsense
        loss, _ = cloning_loss(made, collate(given, made.memory_size), switches())
        made.zero_grad()
        loss.backward()
        gradient = made.action_head.mean.weight.grad
        assert gradient is not None
        found.append((float(loss.detach()), gradient.clone()))
    assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])
    for one in given:
        one.label[one.valid] *= 0.5
    loss, _ = cloning_loss(made, collate(given, made.memory_size), switches())
    assert float(loss.detach()) != found[0][0]


def test_masked_dimensions_do_not_count_and_switches_are_optional_in_the_loss() -> None:
    made, given = policy(), episodes()
    none = torch.zeros(ACTIONS, dtype=torch.bool)
    before, parts = cloning_loss(made, collate(given, made.memory_size), none)
    assert set(parts) == {"distance"} and torch.equal(parts["distance"], before)
    for one in given:
        one.label[:, MASK.index(False)] = 1.0
    assert torch.equal(cloning_loss(made, collate(given, made.memory_size), none)[0], before)


# Inputs of the policy.


@pytest.mark.parametrize("looks", [False, True])
def test_only_a_policy_with_previous_action_depends_on_it(looks: bool) -> None:
    made = policy(dataclasses.replace(SMALL, previous_action=looks))
    batch = collate(episodes(), made.memory_size)
    with torch.no_grad():
        one = made.evaluate(batch.observation, torch.zeros_like(batch.label), batch.pack).mean
        other = made.evaluate(batch.observation, torch.ones_like(batch.label), batch.pack).mean
        shown = {name: values[:4] for name, values in batch.observation.items()}
        memory, later = made.initial_memory(4), torch.zeros(4, dtype=torch.bool)
        acts = [
            made.act(shown, torch.full((4, ACTIONS), value), memory, later).mean
            for value in (0.0, 0.7)
        ]
    assert torch.equal(one, other) != looks
    assert torch.equal(*acts) != looks


def test_magnify_state_adds_scaled_tanh_copies_of_the_state() -> None:
    made = policy(dataclasses.replace(SMALL, magnify_state=True, lstm_layers=0))
    layer = made.trunk.embed[0]
    assert layer.in_features == STATE * (1 + len(MAGNIFIED))
    seen: list[torch.Tensor] = []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].detach()))
    state = torch.tensor([[0.0, 0.01, -0.3, 5.0]])
    shown = {"state": state, "depth": torch.zeros(1, SIDE, SIDE)}
    first = torch.tensor([True])
    made.act(shown, torch.zeros(1, ACTIONS), made.initial_memory(1), first)
    wanted = [state[0].tolist()]
    wanted += [[math.tanh(by * value) for value in state[0].tolist()] for by in MAGNIFIED]
    assert seen[0][0].tolist() == pytest.approx(list(itertools.chain(*wanted)), abs=1e-6)


# Fitting.


def toy(count: int = 40) -> list[Demonstration]:
    """Returns demonstrations of an expert that needs memory.

    The expert's first action follows the first entry of the state, its second action the second
    entry of the previous step. The first switch is on where the third entry is positive, the second
    is always off.
    """
    rng, given = np.random.default_rng(5), []
    for _ in range(count):
        length = int(rng.integers(4, 12))
        state = rng.uniform(-1.0, 1.0, (length, STATE)).astype(np.float32)
        label = np.zeros((length, ACTIONS), np.float32)
        label[:, 0] = 0.8 * state[:, 0]
        label[1:, 1] = 0.6 * state[:-1, 1]
        label[:, 2] = np.where(state[:, 2] > 0.0, 1.0, -1.0)
        label[:, 4] = -1.0
        depth = np.zeros((length, SIDE, SIDE), np.uint16)
        shown = {"state": state, "depth": depth}
        given.append(Demonstration(shown, label, np.ones(length, bool), label))
    return given


def fitted(given: list[Demonstration], frames: int, seed: int = 0) -> tuple[Cloner, dict]:
    settings = CloningSettings(learning_rate=1e-2, final_rate=1e-3, batch_frames=60)
    cloner = Cloner(policy(), settings, SWITCHES, seed)
    return cloner, cloner.learn(given, frames, 0.0, 1.0)


def test_cloning_without_episodes_is_refused() -> None:
    with pytest.raises(RunError, match="no episode to learn from"):
        fitted([], 300)


@pytest.mark.slow
def test_a_policy_is_fitted_to_an_expert_that_needs_memory() -> None:
    given = toy()
    cloner, first = fitted(given, 300)
    last = cloner.learn(given, 15_000, 0.0, 1.0)
    assert last["distance"] < 0.3 * first["distance"]
    again = cloner.learn(given, 1_000, 1.0, 1.0)
    assert again["distance"] < 0.05
    assert again["switches"] < 0.3 * first["switches"]
    assert again["learning_rate"] == pytest.approx(1e-3)
    batch = collate(toy(60)[40:], cloner.policy.memory_size)  # held-out episodes of the same expert
    with torch.no_grad():
        none = torch.zeros_like(batch.label)
        mean = cloner.policy.evaluate(batch.observation, none, batch.pack).mean
    right = (mean[:, 2] > 0) == (batch.label[:, 2] > 0)
    assert float((mean[:, :2] - batch.label[:, :2]).abs().mean()) < 0.15
    assert float(right.float().mean()) > 0.85


def test_sensing_noise_scales_only_depth_and_rays() -> None:
    given = collate(toy(3), 0)
    for one in given.observation.values():
        one += 0.5
    settings = CloningSettings(sensing_noise=0.2)
    cloner = Cloner(policy(), settings, SWITCHES)
    made = cloner._noisy(given).observation
    before = given.observation
    off = made["state"] / before["state"]
    assert torch.equal(off[:, 0], torch.ones(len(off))) and float(off[:, 1:3].std()) > 0.1
    factors = made["depth"] / before["depth"]
    assert torch.equal(factors.amax((1, 2)), factors.amin((1, 2))) and float(factors.std()) > 0.1
    plain = Cloner(policy(), CloningSettings(), SWITCHES)
    assert plain._noisy(given) is given


def test_the_seed_determines_the_learned_weights() -> None:
    given = toy(20)
    states = [fitted(given, 500, seed)[0].policy.state_dict() for seed in (0, 0, 1)]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
    assert any(not torch.equal(value, states[2][name]) for name, value in states[0].items())


def test_learning_ends_with_the_batch_that_reaches_the_number_of_frames() -> None:
    given = toy(20)
    cloner, found = fitted(given, 130)
    assert 130 <= found["frames"] < 130 + 60 + 12
    more = cloner.learn(given, 3 * sum(map(len, given)), 0.5, 0.5)
    assert more["frames"] >= 3 * sum(map(len, given))  # several passes over the episodes
    assert more["learning_rate"] == pytest.approx(0.5 * (1e-2 + 1e-3))


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    given = toy(3)
    given[0].observation["state"][0, 0] = np.nan
    with pytest.raises(RunError, match="cloning: the loss is not finite; is learning_rate"):
        fitted(given, 300)
