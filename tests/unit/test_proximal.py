"""Experience of older policies: ratios, KL and age are relative to the updated policy."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from random_rollouts import Driver, TinyPolicy, collected, make_rollout, sequences_of
from test_ppo import ONE_STEP, gradients, perturbed, reference_loss

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.learning.ppo import PPO
from tpsrl.rl.learning.proximal import proximal_log_prob, stale_sequences
from tpsrl.rl.policy import gaussian


def log_probs(policy: TinyPolicy, rollout: Rollout) -> dict[int, float]:
    """Returns log probabilities by row, with the policy run step by step over each sequence."""
    found = {}
    for rows in sequences_of(rollout):
        memory = rollout.memory[rows[:1]]
        for row in rows:
            seen = {name: t[row : row + 1] for name, t in rollout.observation.items()}
            with torch.no_grad():
                before = rollout.previous_action[row : row + 1]
                step = policy.act(seen, before, memory, torch.tensor([False]))
            memory, action = step.memory, rollout.action[row : row + 1]
            found[row] = float(gaussian.log_prob(step.mean, step.std, action, policy.mask))
    return found


def two_versions() -> tuple[Rollout, TinyPolicy]:
    """Returns a rollout of version 1 with steps that were in flight when version 0 was updated."""
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=3)
    rollout.begin()
    driver.collect(rollout, version=0)
    assert 0 < len(rollout.in_flight) < 5
    perturbed(policy, 0.2)
    rollout.begin()
    driver.collect(rollout, version=1)
    return rollout, policy


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_proximal_probabilities_equal_those_of_the_policy_run_step_by_step(batch: int) -> None:
    rollout, policy, _ = collected(seed=2, rollouts=2)
    perturbed(policy, 0.3)
    found = proximal_log_prob(policy, rollout, version=1, batch=batch)
    expected = log_probs(policy, rollout)
    assert [float(found[row]) for row in rollout.rows] == pytest.approx(
        [expected[row] for row in rollout.rows], abs=1e-5
    )
    kept = np.setdiff1d(np.arange(rollout.capacity), rollout.rows)
    assert torch.equal(found[kept], rollout.log_prob[kept])


def test_rows_of_the_current_policy_keep_their_recorded_probability() -> None:
    rollout, policy = two_versions()
    perturbed(policy, 0.2)
    found = proximal_log_prob(policy, rollout, version=1, batch=60)
    changed = [row for row in rollout.rows if found[row] != rollout.log_prob[row]]
    assert changed == [row for row in rollout.rows if rollout.version[row] == 0]
    assert proximal_log_prob(policy, rollout, version=0, batch=60) is not rollout.log_prob
    rollout.version[:] = 1
    assert proximal_log_prob(policy, rollout, version=1, batch=60) is rollout.log_prob


def test_the_policy_is_run_only_up_to_the_last_stale_row_of_a_sequence() -> None:
    rollout, _ = two_versions()
    parts = stale_sequences(rollout, version=1, batch=60)
    stale = [row for row in rollout.rows if rollout.version[row] == 0]
    assert sorted(int(row) for part in parts for row in part.rows) == stale
    parts = stale_sequences(rollout, version=2, batch=10)
    assert sorted(int(row) for part in parts for row in part.rows) == sorted(rollout.rows)
    assert all(len(part.rows) <= 10 or len(part.pack.memory) == 1 for part in parts)


def test_metrics_of_an_update_are_relative_to_the_policy_at_its_start() -> None:
    rollout, policy, _ = collected(seed=2)
    perturbed(policy, 0.1)
    naive = PPO(copy.deepcopy(policy), ONE_STEP).update(rollout, version=0)
    assert naive["kl"] > 0.01 and naive["clip_fraction"] > 0.1
    metrics = PPO(policy, ONE_STEP).update(rollout, version=1)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["clip_fraction"] == 0.0
    assert naive["correction"] == 1.0 and abs(metrics["correction"] - 1.0) > 1e-3


@pytest.mark.parametrize("largest", [1.1, 1e6])
def test_the_gradient_is_that_of_the_decoupled_objective(largest: float) -> None:
    rollout, policy, _ = collected(seed=4)
    perturbed(policy, 0.15)
    twin, settings = copy.deepcopy(policy), dataclasses.replace(ONE_STEP, correction_max=largest)
    ppo = PPO(policy, settings)
    ppo.update(rollout, version=1)
    # Equivalent to advantages scaled by the correction, with ratios to the proximal policy.
    proximal = proximal_log_prob(twin, rollout, version=1, batch=60)
    correction = (proximal - rollout.log_prob).exp().clamp(max=largest)
    assert float(correction[rollout.rows].max()) > 1.1
    rollout.advantage *= correction
    rollout.log_prob[:] = proximal
    reference_loss(twin, rollout, settings, settings.entropy_coef).backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(gradients(ppo)[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_age_is_relative_to_the_policy_that_learns() -> None:
    rollout, policy = two_versions()
    share = float(np.mean(rollout.version[rollout.rows] == 0))
    assert PPO(copy.deepcopy(policy), ONE_STEP).update(rollout)["age"] == pytest.approx(share)
    found = PPO(policy, ONE_STEP).update(rollout, version=3)["age"]
    assert found == pytest.approx(2.0 + share)
