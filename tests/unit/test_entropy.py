import math

import pytest
import torch

from tpsrl import config
from tpsrl.rl.learning.entropy import EntropyCoefficient, coefficient_of
from tpsrl.rl.learning.settings import PPOSettings


def coefficient(
    initial: float = 1e-2, target: float = 0.0, learning_rate: float = 0.1
) -> EntropyCoefficient:
    return EntropyCoefficient(initial, 1e-4, 1.0, target, learning_rate)


def fed(alpha: EntropyCoefficient, entropy: float, steps: int = 1) -> float:
    for _ in range(steps):
        alpha.update(torch.tensor(entropy - alpha.target))
    return float(alpha.value)


@pytest.mark.parametrize("target", [-3.0, 0.0, 2.0])
def test_the_coefficient_rises_below_the_target_entropy_and_falls_above_it(target):
    assert fed(coefficient(target=target), target - 0.5) > 1e-2
    assert fed(coefficient(target=target), target + 0.5) < 1e-2


def test_the_coefficient_reverses_when_the_entropy_crosses_the_target():
    alpha = coefficient()
    low = fed(alpha, 1.0, steps=10)
    assert fed(alpha, -1.0, steps=30) > low


@pytest.mark.parametrize(("entropy", "bound"), [(-1.0, 1.0), (1.0, 1e-4)])
def test_the_coefficient_stays_within_its_bounds(entropy, bound):
    assert fed(coefficient(), entropy, steps=200) == pytest.approx(bound, rel=1e-6)


def test_the_coefficient_leaves_a_bound_as_soon_as_the_constraint_reverses():
    alpha = coefficient()
    fed(alpha, 1.0, steps=500)
    assert fed(alpha, -1.0, steps=40) > 1e-3


def test_updates_equal_adam_written_by_hand():
    alpha, generator = coefficient(target=0.3), torch.Generator().manual_seed(0)
    log_alpha, first, second = math.log(1e-2), 0.0, 0.0
    for step in range(1, 60):
        entropy = torch.randn(16, generator=generator, dtype=torch.float64) + 0.2
        weight = torch.rand(16, generator=generator, dtype=torch.float64)
        alpha.update((weight * (entropy - alpha.target)).mean())
        pairs = zip(weight.tolist(), entropy.tolist(), strict=True)
        gradient = sum(w * (h - 0.3) for w, h in pairs) / 16
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = math.sqrt(second / (1 - 0.999**step)) + 1e-8
        log_alpha -= 0.1 * first / (1 - 0.9**step) / size
        log_alpha = min(max(log_alpha, math.log(1e-4)), 0.0)
        assert float(alpha.log_alpha) == pytest.approx(log_alpha, rel=1e-9)


def test_a_fixed_coefficient_keeps_its_initial_value():
    assert fed(coefficient(initial=3e-4, learning_rate=0.0), -5.0, steps=10) == pytest.approx(3e-4)


def test_a_coefficient_of_zero_stays_zero():
    alpha = coefficient(initial=0.0)
    assert fed(alpha, -5.0, steps=10) == 0.0
    again = coefficient(initial=0.0)
    again.load_state_dict(alpha.state_dict())
    assert fed(again, -5.0, steps=10) == 0.0


def test_a_fixed_coefficient_outside_the_bounds_is_the_same_after_loading():
    alpha, again = (coefficient(initial=1e-6, learning_rate=0.0) for _ in range(2))
    again.load_state_dict(alpha.state_dict())
    assert torch.equal(again.log_alpha, alpha.log_alpha)


def test_a_learned_coefficient_loaded_from_zero_has_its_initial_value():
    alpha = coefficient()
    alpha.load_state_dict(coefficient(initial=0.0).state_dict())
    assert float(alpha.value) == pytest.approx(1e-2)
    assert fed(alpha, -1.0) > 1e-2


def test_a_learned_coefficient_is_clipped_to_its_bounds_after_loading():
    alpha, other = coefficient(), EntropyCoefficient(1e-6, 1e-7, 1.0, 0.0, 0.1)
    alpha.load_state_dict(other.state_dict())
    assert float(alpha.value) == pytest.approx(1e-4)


@pytest.mark.parametrize(("epochs", "parts"), [(3, 2), (2, 8), (1, 1)])
def test_the_coefficient_changes_by_a_factor_of_ten_in_a_hundred_updates(epochs, parts):
    alpha = coefficient_of(PPOSettings(epochs=epochs, minibatches=parts), "cpu")
    rising = fed(alpha, -1.0, steps=100 * epochs * parts)
    assert rising == pytest.approx(1e-2, rel=0.05)


def test_the_learning_rate_of_the_paper_can_be_set():
    alpha = coefficient_of(PPOSettings(entropy_learning_rate=2.5e-4), "cpu")
    assert fed(alpha, -1.0, steps=600) == pytest.approx(1e-3 * math.exp(0.15), rel=1e-3)


@pytest.mark.parametrize(
    "words",
    [
        ["entropy_min=0.5", "entropy_max=0.1"],
        ["entropy_max=1e-5"],
        ["entropy_min=0", "entropy_max=0"],
        ["entropy_min=0.01", "entropy_target=100"],
    ],
)
def test_without_an_entropy_bonus_the_bounds_do_not_matter(words):
    settings = config.load(
        PPOSettings, config.parse(["entropy_coef=0", "entropy_learned=true", *words])
    )
    settings.check()
    assert fed(coefficient_of(settings, "cpu"), -5.0, steps=10) == 0.0


def test_a_minimum_of_zero_lets_the_coefficient_fall_without_a_bound():
    alpha = coefficient_of(config.load(PPOSettings, config.parse(["entropy_min=0"])), "cpu")
    assert 0.0 < fed(alpha, 1.0, steps=2_000) < 1e-5


def test_a_skipped_update_changes_nothing():
    alpha = coefficient()
    fed(alpha, 0.7)
    before = alpha.state_dict()
    alpha.update(torch.tensor(math.nan), skip=torch.ones(()))
    after = alpha.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_coefficient_continues_from_its_state_bit_for_bit():
    alpha, other = coefficient(), coefficient(initial=0.5)
    fed(alpha, 0.7, steps=7)
    other.load_state_dict(alpha.state_dict())
    fed(alpha, -0.4, steps=5)
    fed(other, -0.4, steps=5)
    assert torch.equal(alpha.log_alpha, other.log_alpha)
