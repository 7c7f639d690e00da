import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from random_rollouts import MASK, TinyPolicy, collected, sequences_of
from torch.nn.utils.rnn import pad_sequence

from tpsrl import config
from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.learning.ppo import PPO, clipped_loss
from tpsrl.rl.learning.rates import rate_factor
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.learning.value_fit import squared_errors
from tpsrl.rl.policy import gaussian

# One gradient step on a whole rollout; its gradient can be read from Adam's first moment.
ONE_STEP = PPOSettings(epochs=1, minibatches=1, max_grad_norm=0.0)


def perturbed(policy: TinyPolicy, size: float = 0.3) -> TinyPolicy:
    """Adds noise to a policy, so that ratios are not 1 and some are outside the clip range."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return policy


def gradients(ppo: PPO) -> dict[str, torch.Tensor]:
    """Returns the gradient of the only step, ten times Adam's first moment."""
    prefix = "adam.exp_avg."
    tensors, _ = ppo.state_dict()
    return {k[len(prefix) :]: 10 * v for k, v in tensors.items() if k.startswith(prefix)}


def reference_loss(policy: TinyPolicy, rollout: Rollout, settings: PPOSettings, alpha: float):
    """Computes the loss over padded sequences, sample by sample from the formulas."""
    sequences = sequences_of(rollout)
    joined = policy.joined(rollout.observation, rollout.previous_action)
    padded = pad_sequence([joined[rows] for rows in sequences])
    first = [rows[0] for rows in sequences]
    h, c = rollout.memory[first].view(1, len(first), 2, -1).unbind(2)
    out, _ = policy.lstm(padded, (h.contiguous(), c.contiguous()))
    places = [(row, t, q) for q, rows in enumerate(sequences) for t, row in enumerate(rows)]
    steps = {row: policy.head(out[t, q]) for row, t, q in places}
    fresh = [int(row) for row in rollout.rows[: rollout.num_fresh]]
    total = torch.zeros(())
    for row in rollout.rows:
        weight = 1.0
        if row in fresh:
            own = sum(rollout.env[r] == rollout.env[row] for r in fresh)
            weight = min(1.0, len(fresh) / rollout.num_envs / own)
        log_prob, entropy = torch.zeros(()), torch.zeros(())
        for part in [i for i, used in enumerate(MASK) if used]:
            law = torch.distributions.Normal(steps[row][part], policy.log_std[part].exp())
            log_prob = log_prob + law.log_prob(rollout.action[row, part])
            entropy = entropy + law.entropy()
        ratio = torch.exp(log_prob - rollout.log_prob[row])
        advantage = float(rollout.advantage[row])
        low, high = 1 - settings.clip, 1 + settings.clip
        surrogate = min(ratio * advantage, ratio.clamp(low, high) * advantage)
        error = 0.5 * (steps[row][-1] - rollout.returns[row]) ** 2
        total = total + weight * (-surrogate + settings.value_coef * error - alpha * entropy)
        change = (steps[row][:-1] - rollout.previous_action[row].clamp(-1, 1))[torch.tensor(MASK)]
        total = total + settings.smooth_coef * change.square().sum()
    return total / len(rollout.rows)


def assert_same_gradient(policy: TinyPolicy, rollout: Rollout, settings: PPOSettings) -> None:
    reference = copy.deepcopy(policy)
    ppo = PPO(policy, settings)
    found = ppo.update(rollout)
    alpha = settings.entropy_coef
    expected = reference_loss(reference, rollout, settings, alpha)
    expected.backward()
    # The entropy of `TinyPolicy` does not depend on the observation.
    bonus = alpha * found["entropy"] * found["importance_weight"]
    loss = found["policy_loss"] + settings.value_coef * found["value_loss"] - bonus
    loss += settings.smooth_coef * found["action_change"]
    assert loss == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(gradients(ppo)[name], parameter.grad, rtol=1e-4, atol=1e-6)


# Loss and gradient.


@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_the_packed_loss_equals_that_of_the_padded_one(seed):
    rollout, policy, _ = collected(seed=seed, rollouts=2)
    assert_same_gradient(
        perturbed(policy), rollout, dataclasses.replace(ONE_STEP, entropy_coef=0.05)
    )


def test_gradient_with_a_loss_against_jitter_equals_the_reference():
    rollout, policy, _ = collected(seed=2, rollouts=2)
    assert_same_gradient(perturbed(policy), rollout, dataclasses.replace(ONE_STEP, smooth_coef=0.2))


def test_gradient_with_stale_rows_equals_the_reference():
    rollout, policy, driver = collected(seed=1)
    PPO(copy.deepcopy(policy), ONE_STEP).update(rollout)
    rollout.begin()
    driver.collect(rollout, count=25, fill=True)
    stale = torch.as_tensor(rollout.rows[25:])
    kept = rollout.advantage[stale].clone(), rollout.returns[stale].clone()
    assert_same_gradient(perturbed(policy), rollout, ONE_STEP)
    assert torch.equal(rollout.advantage[stale], kept[0])
    assert torch.equal(rollout.returns[stale], kept[1])


@pytest.mark.parametrize("value_lambda", [None, 0.3])
def test_advantages_of_a_rollout_follow_the_textbook_recursion(value_lambda):
    rollout, policy, driver = collected(seed=2, size=80, rollouts=3)
    settings = dataclasses.replace(ONE_STEP, value_lambda=value_lambda)
    PPO(copy.deepcopy(policy), settings).update(rollout)
    lambdas = (0.95, 0.95 if value_lambda is None else value_lambda)
    for env, history in enumerate(driver.completed(2)):
        rows = [row for row in rollout.rows if rollout.env[row] == env]
        later = np.zeros(2)
        for row, seen in reversed(list(zip(rows, history, strict=True))):
            later = np.zeros(2) if seen.terminated or seen.truncated else later
            error = seen.reward + 0.99 * driver.following(seen) - seen.value
            later = error + 0.99 * np.array(lambdas) * later
            assert float(rollout.advantage[row]) == pytest.approx(later[0], abs=1e-4)
            assert float(rollout.returns[row]) == pytest.approx(later[1] + seen.value, abs=1e-4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        (1.1, 2.0, -2.2, -2.0),
        (1.5, 2.0, -2.4, 0.0),
        (0.5, 2.0, -1.0, -2.0),
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 2.0),
    ],
)
def test_clipped_loss_moves_the_ratio_no_further_than_the_clip_range(
    ratio, advantage, expected, slope
):
    ratios = torch.tensor([ratio], requires_grad=True)
    loss = clipped_loss(ratios, torch.tensor([advantage]), 0.2)
    loss.sum().backward()
    assert float(loss.detach()) == pytest.approx(expected)
    assert float(ratios.grad) == pytest.approx(slope)


def test_value_loss_is_half_the_squared_error_or_the_larger_clipped_one():
    value, returns, old = torch.tensor([3.0, 1.05]), torch.tensor([1.0, 2.0]), torch.ones(2)
    assert squared_errors(value, returns).tolist() == pytest.approx([2.0, 0.5 * 0.95**2])
    clipped = squared_errors(value, returns, (old, 0.2))
    assert clipped.tolist() == pytest.approx([2.0, 0.5 * 0.95**2])
    far = torch.tensor([1.0, 1.9])
    clipped = squared_errors(far, returns, (old, 0.2))
    assert clipped.tolist() == pytest.approx([0.0, 0.5 * 0.8**2])


def test_masked_action_parts_change_nothing():
    results = []
    for junk in (0.0, 1e6):
        rollout, policy, _ = collected(seed=3)
        with torch.no_grad():
            rollout.action[:, 1] = junk
            policy.log_std[1] = math.log(1.0 + junk)
            policy.head.bias[1] = junk
        ppo = PPO(policy, PPOSettings())
        metrics = ppo.update(rollout)
        free = {k: v for k, v in gradients(ppo).items() if k not in ("log_std", "head.bias")}
        assert not policy.lstm.weight_ih_l0.isnan().any()
        results.append((metrics, free, gradients(ppo)["log_std"][1]))
    assert results[0][0] == results[1][0]
    for name, gradient in results[0][1].items():
        assert torch.equal(gradient, results[1][1][name])
    assert results[0][2] == results[1][2] == 0.0


def test_advantages_can_be_normalised_over_the_rollout():
    rollout, policy, _ = collected(seed=1, rollouts=2)
    ppo = PPO(perturbed(policy), dataclasses.replace(ONE_STEP, normalise_advantage=True))
    twin = copy.deepcopy(policy)
    ppo.update(rollout)
    rows = torch.as_tensor(rollout.rows)
    plain = rollout.advantage[rows].double().numpy()
    rollout.advantage[rows] = torch.as_tensor((plain - plain.mean()) / plain.std()).float()
    reference_loss(twin, rollout, ONE_STEP, 1e-3).backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(gradients(ppo)[name], parameter.grad, rtol=1e-3, atol=1e-6)


def test_gradients_are_clipped_to_the_maximum_norm():
    rollout, policy, _ = collected()
    free, cut = (
        PPO(copy.deepcopy(policy), ONE_STEP),
        PPO(policy, PPOSettings(epochs=1, minibatches=1)),
    )
    before, after = free.update(rollout), cut.update(rollout)
    assert before["grad_norm"] == pytest.approx(after["grad_norm"]) and before["grad_norm"] > 0.2

    def length(ppo: PPO) -> float:
        return math.sqrt(sum(float(g.square().sum()) for g in gradients(ppo).values()))

    assert length(free) == pytest.approx(before["grad_norm"], rel=1e-4)
    assert length(cut) == pytest.approx(0.2, rel=1e-3)


# Metrics, schedule, stopping.


def test_metrics_of_the_first_pass_are_those_of_the_collecting_policy():
    rollout, policy, _ = collected(seed=2)
    metrics = PPO(policy, ONE_STEP).update(rollout)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["clip_fraction"] == 0.0
    assert metrics["entropy"] == pytest.approx(2 * (-0.5 + 0.5 * math.log(2 * math.pi * math.e)))
    assert metrics["entropy_coef"] == pytest.approx(1e-3)
    assert metrics["fresh"] == 1.0 and metrics["age"] == 0.0 and metrics["epochs"] == 1.0
    counts = rollout.counts()
    weights = [min(1.0, 12 / n) for n in counts for _ in range(n)]
    assert metrics["importance_weight"] == pytest.approx(sum(weights) / 60)


def test_kl_and_clip_fraction_equal_their_definitions():
    rollout, policy, _ = collected(seed=2)
    policy = perturbed(policy, 0.1)
    observed = []
    for rows in sequences_of(rollout):
        memory = rollout.memory[rows[:1]]
        for row in rows:
            seen = {name: t[row : row + 1] for name, t in rollout.observation.items()}
            start = torch.tensor([False])
            step = policy.act(seen, rollout.previous_action[row : row + 1], memory, start)
            memory = step.memory
            action = rollout.action[row : row + 1]
            new = gaussian.log_prob(step.mean, step.std, action, policy.mask).detach()
            observed.append(float(new) - float(rollout.log_prob[row]))
    log_ratio = np.array(observed)
    metrics = PPO(policy, ONE_STEP).update(rollout)
    ratio = np.exp(log_ratio)
    assert metrics["kl"] == pytest.approx(np.mean(ratio - 1 - log_ratio), rel=1e-3)
    assert metrics["clip_fraction"] == pytest.approx(np.mean(np.abs(ratio - 1) > 0.2), abs=1e-6)
    assert 0.1 < metrics["clip_fraction"] < 1.0


def test_the_entropy_coefficient_rises_when_the_entropy_is_too_low():
    moved = []
    for target in (-100.0, 100.0):
        rollout, policy, _ = collected()
        ppo = PPO(policy, PPOSettings(entropy_target=target))
        ppo.update(rollout)
        moved.append(float(ppo.entropy.value))
    assert moved[0] < 1e-3 < moved[1]


def test_learning_stops_after_an_epoch_that_exceeds_the_target_kl():
    results = []
    for target in (None, 1e-6, 1e6):
        rollout, policy, _ = collected()
        settings = PPOSettings(learning_rate=1e-2, epochs=5, target_kl=target)
        results.append(PPO(policy, settings).update(rollout)["epochs"])
    assert results == [5.0, 1.0, 5.0]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("cosine", [1.0, 0.5, 0.0]), ("linear", [1.0, 0.5, 0.0]), ("constant", [1.0, 1.0, 1.0])],
)
def test_learning_rate_follows_the_schedule(schedule, expected):
    assert [rate_factor(schedule, p) for p in (0.0, 0.5, 1.0)] == pytest.approx(expected)
    assert rate_factor(schedule, 1.2) == pytest.approx(expected[-1])
    rollout, policy, _ = collected()
    settings = PPOSettings(schedule=schedule)
    assert PPO(policy, settings).update(rollout, 0.5)["learning_rate"] == pytest.approx(
        2.5e-4 * expected[1]
    )


def test_nothing_is_learned_at_the_end_of_the_schedule():
    rollout, policy, _ = collected()
    before = copy.deepcopy(policy.state_dict())
    PPO(policy, PPOSettings()).update(rollout, progress=1.0)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())


# Errors.


def test_a_loss_that_is_not_finite_is_reported_and_changes_no_state():
    rollout, policy, _ = collected()
    ppo = PPO(policy, PPOSettings())
    ppo.update(rollout)
    before, state = copy.deepcopy(policy.state_dict()), ppo.state_dict()[0]
    rollout, _, _ = collected(seed=1)
    rollout.reward[rollout.rows] = np.nan
    with pytest.raises(RunError, match="not finite, nor is reward"):
        ppo.update(rollout)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())
    del state["shuffle"]
    assert all(torch.equal(tensor, ppo.state_dict()[0][name]) for name, tensor in state.items())


def test_learning_continues_after_a_rollout_that_was_not_finite():
    rollout, policy, _ = collected()
    ppo = PPO(policy, PPOSettings())
    reward = rollout.reward.copy()
    rollout.reward[rollout.rows[0]] = np.inf
    with pytest.raises(RunError):
        ppo.update(rollout)
    rollout.reward[:] = reward
    before = policy.head.weight.detach().clone()
    assert math.isfinite(ppo.update(rollout)["policy_loss"])
    assert not torch.equal(before, policy.head.weight)


def test_bounds_of_the_entropy_coefficient_are_checked():
    with pytest.raises(UserError, match=r"entropy_coef: 2.0 is not between 0.0001 and 1.0"):
        PPO(TinyPolicy(), PPOSettings(entropy_coef=2.0))
    with pytest.raises(UserError, match=r"entropy_min: 0.5 is above entropy_max, 0.1"):
        PPO(TinyPolicy(), PPOSettings(entropy_min=0.5, entropy_max=0.1))


@pytest.mark.parametrize("learned", [True, False])
def test_an_entropy_coefficient_of_zero_stays_zero(learned):
    rollout, policy, _ = collected()
    words = ["entropy_coef=0", f"entropy_learned={str(learned).lower()}", "entropy_target=100"]
    ppo = PPO(policy, config.load(PPOSettings, config.parse(words)))
    first, second = ppo.update(rollout), ppo.update(rollout)
    assert first["entropy_coef"] == second["entropy_coef"] == 0.0
    assert all(math.isfinite(value) for value in second.values())


def test_without_an_entropy_bonus_the_loss_is_that_of_policy_and_value():
    parameters = []
    for coefficient in (0.0, 1e-30):
        rollout, policy, _ = collected()
        settings = PPOSettings(entropy_coef=coefficient, entropy_learned=False)
        PPO(policy, settings).update(rollout)
        parameters.append(policy.state_dict())
    assert all(torch.equal(parameters[0][name], parameters[1][name]) for name in parameters[0])


def test_settings_are_read_as_overrides():
    settings = config.load(
        PPOSettings, config.parse(["schedule=linear", "target_kl=0.01", "clip=0.1"])
    )
    assert (settings.schedule, settings.target_kl, settings.clip) == ("linear", 0.01, 0.1)
    with pytest.raises(UserError, match="schedule"):
        config.load(PPOSettings, config.parse(["schedule=cosin"]))


# Resumption.


def test_updates_after_saving_and_loading_are_equal_bit_for_bit():
    rollout, policy, driver = collected()
    ppo = PPO(policy, PPOSettings(learning_rate=1e-3), seed=3)
    ppo.update(rollout)
    twin = TinyPolicy(seed=9)
    twin.load_state_dict(policy.state_dict())
    tensors, note = ppo.state_dict()
    again = PPO(twin, PPOSettings(learning_rate=1e-3), seed=4)
    again.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, note)
    rollout.begin()
    driver.collect(rollout)
    assert ppo.update(rollout, 0.1) == again.update(rollout, 0.1)
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name])
    ours, theirs = ppo.state_dict()[0], again.state_dict()[0]
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_state_of_another_learner_is_refused():
    tensors, note = PPO(TinyPolicy(), PPOSettings()).state_dict()
    wider = TinyPolicy(EnvSpec({"state": (9,)}, MASK))
    with pytest.raises(UserError, match=r"lstm.weight_ih_l0 is of shape \(20, 13\) in the check"):
        PPO(wider, PPOSettings()).load_state_dict(tensors, note)
    del tensors["adam.step.log_std"]
    with pytest.raises(UserError, match=r"lacks adam.step.log_std"):
        PPO(TinyPolicy(), PPOSettings()).load_state_dict(tensors, note)


# Learning.


@pytest.mark.slow
def test_ppo_learns_to_recall_a_cue_from_the_first_step():
    """A cue of -1 or 1 is observed in the first of four steps and rewarded in the last."""
    num_envs, length = 32, 4
    spec = EnvSpec({"state": (2,)}, (True,))
    policy, rng = TinyPolicy(spec), np.random.default_rng(0)
    settings = PPOSettings(
        learning_rate=2e-2, schedule="constant", epochs=4, minibatches=2, max_grad_norm=0.5
    )
    ppo, rollout = PPO(policy, settings), Rollout(spec, num_envs, 8 * num_envs, policy.memory_size)
    generator = torch.Generator().manual_seed(0)
    cue, time, rewards = rng.choice([-1.0, 1.0], num_envs), 0, []

    def look() -> dict[str, np.ndarray]:
        shown = cue if time == 0 else np.zeros(num_envs)
        return {"state": np.stack((shown, np.full(num_envs, time == length - 1)), 1).astype("f4")}

    envs = np.arange(num_envs)
    for _ in range(40):
        rollout.begin()
        while not rollout.full:
            seen = {name: torch.as_tensor(array) for name, array in look().items()}
            with torch.inference_mode():
                step = policy.act(seen, *rollout.inputs(envs))
                action = gaussian.sample(step.mean, step.std, policy.mask, generator)
                log_prob = gaussian.log_prob(step.mean, step.std, action, policy.mask)
            rollout.add(
                envs,
                seen,
                action=action,
                log_prob=log_prob,
                value=step.value,
                next_memory=step.memory,
                version=0,
            )
            over = time == length - 1
            reward = -np.abs(action[:, 0].numpy() - cue) if over else np.zeros(num_envs)
            if over:
                rewards.append(reward.mean())
                cue = rng.choice([-1.0, 1.0], num_envs)
            time = (time + 1) % length
            rollout.complete(envs, reward, np.full(num_envs, over), np.zeros(num_envs, bool))
        rollout.finish(policy, lambda chosen: {"state": look()["state"][chosen]})
        ppo.update(rollout)
    # A guess that does not depend on the cue gets -1 at best.
    assert np.mean(rewards[:4]) < -0.9 and np.mean(rewards[-4:]) > -0.3
