"""Auxiliary losses: CPC|A, its use in the learner, and losses registered by users."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from random_rollouts import SPEC, collected
from torch import nn
from torch.nn import functional
from toy_training import SETTINGS, rows, trainer

from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.learning import auxiliary
from tpsrl.rl.learning.auxiliary import check_auxiliary, register_auxiliary, unregister_auxiliary
from tpsrl.rl.learning.cpca import CHANCE, CPCA, Predictions
from tpsrl.rl.learning.feature_batch import FeatureBatch, FeatureSizes
from tpsrl.rl.learning.ppo import PPO
from tpsrl.rl.learning.sequences import minibatches
from tpsrl.rl.learning.settings import AUXILIARY_NAMES, PPOSettings
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.recurrent import Pack
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.trainer import load_latest

F, V, A = 6, 4, 3
SIZES = FeatureSizes(F, V, A, {"state": (4,)}, has_memory=True)
CPCA_SETTINGS = dataclasses.replace(
    SETTINGS, ppo=dataclasses.replace(SETTINGS.ppo, auxiliary="cpca", auxiliary_coef=1.0)
)


def batch_of(lengths: list[int], seed: int = 0) -> FeatureBatch:
    """Returns random rows in stretches of the given lengths, which must be in descending order."""
    torch.manual_seed(seed)
    sizes = torch.tensor([sum(n > t for n in lengths) for t in range(lengths[0])])
    count = sum(lengths)
    return FeatureBatch.of(
        torch.randn(count, F, requires_grad=True),
        torch.randn(count, V, requires_grad=True),
        torch.randn(count, A),
        {"state": torch.randn(count, 4)},
        sizes,
        torch.Generator().manual_seed(seed),
    )


def _network() -> tuple[EnvSpec, PolicySettings]:
    """Returns spec and settings of a small policy for the environments of `random_rollouts`."""
    small = PolicySettings(encoder="state", state_width=8, lstm_layers=1, lstm_width=F)
    return SPEC, small


def _pack(policy: ActorCritic, lengths: list[int]) -> Pack:
    sizes = torch.tensor([sum(n > t for n in lengths) for t in range(lengths[0])])
    return Pack(sizes, policy.initial_memory(len(lengths)))


def places(batch: FeatureBatch) -> dict[tuple[int, int], int]:
    """Maps (stretch, time) to the row."""
    pairs = zip(batch.stretch.tolist(), batch.time.tolist(), strict=True)
    return {pair: row for row, pair in enumerate(pairs)}


def slow_loss(loss: CPCA, batch: FeatureBatch, chosen: Predictions) -> torch.Tensor:
    """Computes the loss of the chosen predictions one by one, running the LSTM step by step."""
    assert batch.vision is not None
    row_of, terms = places(batch), []
    lstm = loss.future
    for number in range(len(chosen.target)):
        start = int(chosen.starts[chosen.start[number]])
        stretch, time = int(batch.stretch[start]), int(batch.time[start])
        output = cell = batch.features[start][None]
        for step in range(int(chosen.distance[number])):
            action = batch.action[row_of[stretch, time + step]][None]
            output, cell = torch.lstm_cell(
                action,
                (output, cell),
                lstm.weight_ih_l0,
                lstm.weight_hh_l0,
                lstm.bias_ih_l0,
                lstm.bias_hh_l0,
            )
        true = row_of[stretch, time + int(chosen.distance[number])]

        def logit(row: int, future: torch.Tensor) -> torch.Tensor:
            joined = loss.of_future(future[0]) + loss.of_image(batch.vision[row])
            return loss.judge(joined)[0]

        negative = [-functional.logsigmoid(-logit(int(r), output)) for r in chosen.negative[number]]
        term = -functional.logsigmoid(logit(true, output)) + sum(negative) / len(negative)
        terms.append(term)
    return sum(terms) / len(terms)


# CPC|A.


def test_the_loss_and_its_gradients_equal_those_of_a_loop_over_time() -> None:
    batch = batch_of([9, 7, 7, 2, 1])
    torch.manual_seed(1)
    loss = CPCA(SIZES, horizon=4, starts=3, distances=2, negatives=5)
    state = batch.generator.get_state()
    found = loss(batch)
    batch.generator.set_state(state)
    expected = slow_loss(loss, batch, loss.choose(batch))
    torch.testing.assert_close(found, expected)
    inputs = [batch.features, batch.vision, *loss.parameters()]
    pairs = zip(
        torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def test_without_limits_each_pair_of_rows_within_the_horizon_is_predicted_once() -> None:
    lengths, horizon = [6, 3, 1], 4
    batch = batch_of(lengths)
    chosen = CPCA(SIZES, horizon=horizon, starts=99, distances=99, negatives=7).choose(batch)
    row_of = places(batch)
    expected = {
        (row_of[s, t], d, row_of[s, t + d])
        for s, length in enumerate(lengths)
        for t in range(length)
        for d in range(1, min(horizon, length - 1 - t) + 1)
    }
    starts = chosen.starts[chosen.start]
    found = list(
        zip(starts.tolist(), chosen.distance.tolist(), chosen.target.tolist(), strict=True)
    )
    assert len(found) == len(expected) and set(found) == expected
    assert not (chosen.negative == chosen.target[:, None]).any()
    assert set(chosen.negative.flatten().tolist()) == set(range(sum(lengths)))


def test_a_limited_number_of_starts_and_distances_is_sampled_on_each_call() -> None:
    batch = batch_of([30, 30, 5])
    loss = CPCA(SIZES, horizon=20, starts=6, distances=2)
    first, second = loss.choose(batch), loss.choose(batch)
    for chosen in (first, second):
        assert batch.stretch[chosen.starts].bincount().tolist() == [6, 6, 4]
        each = chosen.start.bincount(minlength=16)
        left = batch.left()[chosen.starts]
        assert torch.equal(each, left.clamp(max=2))
    assert not torch.equal(first.starts, second.starts)


def test_predictions_and_their_gradients_stay_within_one_episode() -> None:
    """Checks predictions against the episodes recorded in a rollout."""
    rollout, _, _ = collected(seed=1, num_envs=4, size=80, rollouts=2)
    loss = CPCA(FeatureSizes(F, None, 3, {"state": (4,)}, True), starts=99, distances=99)
    episode = np.zeros(rollout.capacity, int)  # episode of each row, unique over all environments
    for env in range(rollout.num_envs):
        own = [row for row in sorted(rollout.rows) if rollout.env[row] == env]
        episode[own] = 1_000 * env + np.cumsum(rollout.is_first[own])
    predicted = 0
    for part in minibatches(rollout, 2, torch.Generator().manual_seed(0)):
        count = len(part.rows)
        features = torch.randn(count, F, requires_grad=True)
        action = rollout.action[part.rows].requires_grad_()
        seen = {"state": torch.randn(count, 4)}
        sizes, draws = part.pack.batch_sizes, torch.Generator().manual_seed(2)
        batch = FeatureBatch.of(features, None, action, seen, sizes, draws)
        chosen = loss.choose(batch)
        here = episode[part.rows.numpy()]
        starts = chosen.starts[chosen.start].numpy()
        assert (here[starts] == here[chosen.target.numpy()]).all()
        steps = part.rows[chosen.target].numpy(), part.rows.numpy()[starts]
        between = [
            sum(rollout.env[low : high + 1] == rollout.env[low]) - 1
            for high, low in zip(*steps, strict=True)
        ]
        assert between == chosen.distance.tolist()
        predicted += len(between)
        one = dataclasses.replace(chosen, start=chosen.start[:1], distance=chosen.distance[:1])
        one = dataclasses.replace(one, target=chosen.target[:1], negative=chosen.negative[:1])
        loss._logits(batch, seen["state"], one).sum().backward()
        assert features.grad is not None and action.grad is not None
        moved = action.grad.abs().sum(1) > 0.0
        assert moved.sum() == chosen.distance[0]
        assert (here[moved.numpy()] == here[starts[0]]).all()
        assert (features.grad.abs().sum(1) > 0.0).nonzero().tolist() == [[starts[0]]]
    assert predicted > 100


def test_stretches_of_one_row_give_zero_loss_and_zero_gradients() -> None:
    batch, loss = batch_of([1, 1, 1]), CPCA(SIZES)
    found = loss(batch)
    assert found.item() == 0.0
    found.backward()
    assert all(p.grad is not None and not p.grad.any() for p in loss.parameters())


@pytest.mark.parametrize(("noise", "low", "high"), [(False, 0.0, 0.7), (True, 1.35, 1.42)])
def test_the_loss_falls_on_predictable_images_and_not_on_noise(
    noise: bool, low: float, high: float
) -> None:
    """Images show a point on a circle that the actions rotate, or are noise."""
    torch.manual_seed(0)
    loss = CPCA(FeatureSizes(16, 2, 1, {"state": (2,)}, True), horizon=4)
    adam = torch.optim.Adam(loss.parameters(), 1e-2)
    draws, losses = torch.Generator().manual_seed(0), []
    sizes = torch.full((12,), 16)
    for _ in range(100):
        action = torch.randint(-1, 2, (12, 16, 1), generator=draws).float()
        angle = torch.rand(16, 1, generator=draws) * 6.0 + 1.5 * action.cumsum(0) - 1.5 * action
        seen = torch.cat((angle.sin(), angle.cos()), dim=2).flatten(0, 1)
        image = torch.randn(len(seen), 2, generator=draws) if noise else seen
        features = functional.pad(seen, (0, 14))
        batch = FeatureBatch.of(features, image, action.flatten(0, 1), {}, sizes, draws)
        found = loss(batch)
        adam.zero_grad()
        found.backward()
        adam.step()
        losses.append(float(found.detach()))
    assert np.mean(losses[:3]) == pytest.approx(CHANCE, abs=0.01)
    assert low < np.mean(losses[-20:]) < high


def test_cpca_is_refused_for_a_policy_without_memory() -> None:
    with pytest.raises(UserError, match=r"cpca needs a memory; set policy\.lstm_layers"):
        CPCA(dataclasses.replace(SIZES, has_memory=False))
    settings = TrainSettings(
        policy=PolicySettings(lstm_layers=0), ppo=PPOSettings(auxiliary="cpca")
    )
    with pytest.raises(UserError, match=r"preset.ppo.auxiliary: cpca needs a memory"):
        settings.check_surroundings(1)


# CPC|A in the learner.


def test_a_resumed_training_equals_an_uninterrupted_one_and_ships_no_loss_weights(
    tmp_path: Path,
) -> None:
    whole = trainer(tmp_path / "whole", settings=CPCA_SETTINGS)
    assert whole.train() == ""
    whole.close()
    first = trainer(tmp_path / "parts", settings=CPCA_SETTINGS)
    for _ in range(4):
        first._update(False)
    first.save()
    first.close()
    second = trainer(tmp_path / "parts", settings=CPCA_SETTINGS)
    second.resume(load_latest(tmp_path / "parts"))
    assert second.train() == ""
    second.close()
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")[4:]
    ours, theirs = (one.ppo.state_dict()[0] for one in (second, whole))
    assert ours.keys() == theirs.keys() and "cpca_head.future.weight_ih_l0" in ours
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(0.0 < row["learner"]["auxiliary_loss"] < 3.0 for row in rows(tmp_path / "whole"))
    folder = tmp_path / "parts" / checkpoint.FOLDER
    kept = checkpoint.load(folder / checkpoint.BEST).tensors
    assert kept and all(name.startswith("policy.") for name in kept)


def test_the_cpca_loss_has_gradients_in_the_encoder() -> None:
    network = PolicySettings(
        encoder="nature_cnn", encoder_width=4, visual_width=8, state_width=8, lstm_width=8
    )
    spec = dataclasses.replace(_network()[0], observations={"state": (4,), "depth": (36, 36)})
    policy = ActorCritic(spec, network)
    learner = PPO(policy, PPOSettings(auxiliary="cpca"))
    assert learner._auxiliary is not None and learner._auxiliary.coefficient == 0.1
    shown = {"state": torch.rand(6, 4), "depth": torch.rand(6, 36, 36)}
    pack = _pack(policy, [3, 3])
    step = policy.evaluate(shown, torch.zeros(6, 3), pack)
    assert step.vision is not None and step.vision.shape == (6, 8)
    torch.testing.assert_close(step.vision, policy.trunk.encoder(shown["depth"]))
    batch = FeatureBatch.of(
        step.features, step.vision, torch.rand(6, 3), shown, pack.batch_sizes, learner.generator
    )
    learner._auxiliary.loss(batch).backward()
    weight = policy.trunk.encoder.linear.weight
    assert weight.grad is not None and bool(weight.grad.any())


def test_auxiliary_coef_alone_selects_the_state_head_and_zero_selects_no_loss() -> None:
    assert PPOSettings(auxiliary_coef=0.3).auxiliary_name == "state"
    assert PPOSettings(auxiliary_coef=0.0).auxiliary_name is None
    assert PPOSettings().auxiliary_name is None
    assert PPOSettings(auxiliary="cpca").auxiliary_name == "cpca"
    with pytest.raises(UserError, match="auxiliary_coef: 0 switches cpca off"):
        PPOSettings(auxiliary="cpca", auxiliary_coef=0.0).check()
    spec, network = _network()
    shows = dataclasses.replace(spec, observations={"state": (4,), "critic": (3,)})
    learner = PPO(ActorCritic(shows, network), PPOSettings(auxiliary_coef=0.2))
    assert learner._auxiliary is not None and learner._auxiliary.coefficient == 0.2
    of_old_checkpoints = {"state_head.linear.weight", "adam.exp_avg.state_head.linear.bias"}
    assert of_old_checkpoints <= learner.state_dict()[0].keys()
    policy = ActorCritic(spec, network)
    with pytest.raises(UserError, match=r"no true state is available; set policy\.critic=true"):
        PPO(policy, PPOSettings(auxiliary_coef=0.3))


# Losses registered by users.


@pytest.fixture
def own() -> Iterator[None]:
    yield
    unregister_auxiliary("small")


class Small(nn.Module):
    """Auxiliary loss that penalises large features."""

    coefficient = 0.5

    def __init__(self, sizes: FeatureSizes) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(sizes.features))

    def forward(self, batch: FeatureBatch) -> torch.Tensor:
        return (self.scale * batch.features).square().mean()


@pytest.mark.usefixtures("own")
def test_a_registered_loss_is_trained_when_the_settings_name_it(tmp_path: Path) -> None:
    register_auxiliary("small", Small)
    register_auxiliary("small", Small)  # allowed: a script may also be imported
    assert auxiliary.auxiliary_names() == (*AUXILIARY_NAMES, "small")
    ppo = dataclasses.replace(SETTINGS.ppo, auxiliary="small", learning_rate=0.01)
    one = trainer(tmp_path, settings=dataclasses.replace(SETTINGS, ppo=ppo))
    assert one._update(False)["learner"]["auxiliary_loss"] > 0.0
    one.close()
    tensors, _ = one.ppo.state_dict()
    assert (tensors["small_head.scale"] < 1.0).all()


def test_invalid_and_unknown_losses_are_refused(tmp_path: Path, capsys) -> None:
    with pytest.raises(UserError, match="'cpca' is registered already"):
        register_auxiliary("cpca", Small)
    with pytest.raises(UserError, match="'My-Loss' is not a valid name"):
        register_auxiliary("My-Loss", Small)
    with pytest.raises(UserError, match=r"Linear.coefficient must be a float above 0, got None"):
        register_auxiliary("linear", nn.Linear)
    with pytest.raises(UserError, match=r"unknown.*'cpc'.*cpca.*auxiliary_modules="):
        check_auxiliary("cpc")
    out = f"out={tmp_path / 'out'}"
    assert cli.main(["train", "pointnav", "preset.ppo.auxiliary=cpc", out]) == 2
    assert "preset.ppo.auxiliary: unknown value 'cpc'" in capsys.readouterr().err
    empty = tmp_path / "empty_module.py"
    empty.write_text("")
    assert cli.main(["train", "pointnav", f"auxiliary_modules={empty}", out]) == 2
    assert "registers no auxiliary loss" in capsys.readouterr().err
