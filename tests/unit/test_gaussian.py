import pytest
import torch
from torch.distributions import Independent, Normal

from tpsrl.rl.policy import gaussian

MASK = torch.tensor([True, False, True, True, False])


def some(seed: int = 0, rows: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns random mean, standard deviation and action, each (rows, 5)."""
    generator = torch.Generator().manual_seed(seed)
    mean, std, action = (torch.randn(rows, 5, generator=generator) for _ in range(3))
    return mean, std.abs() + 0.1, action


def test_log_prob_equals_that_of_torch_over_the_unmasked_dimensions() -> None:
    mean, std, action = some()
    reference = Independent(Normal(mean[:, MASK], std[:, MASK]), 1).log_prob(action[:, MASK])
    torch.testing.assert_close(gaussian.log_prob(mean, std, action, MASK), reference)


def test_entropy_equals_that_of_torch_over_the_unmasked_dimensions() -> None:
    mean, std, _ = some()
    reference = Independent(Normal(mean[:, MASK], std[:, MASK]), 1).entropy()
    torch.testing.assert_close(gaussian.entropy(std, MASK), reference)


@pytest.mark.parametrize("rubbish", [1e30, float("inf"), float("nan"), 0.0])
def test_values_in_masked_dimensions_change_neither_results_nor_gradients(
    rubbish: float,
) -> None:
    results = []
    for replacement in (None, rubbish):
        mean, std, action = some()
        if replacement is not None:
            for tensor in (mean, std, action):
                tensor[:, ~MASK] = replacement
        mean.requires_grad_()
        std.requires_grad_()
        log_prob, entropy = gaussian.log_prob(mean, std, action, MASK), gaussian.entropy(std, MASK)
        (log_prob.sum() + 2 * entropy.sum()).backward()
        results.append((log_prob, entropy, mean.grad, std.grad))
    for ours, theirs in zip(*results, strict=True):
        assert ours is not None and theirs is not None
        assert torch.equal(ours, theirs)
    for gradient in results[1][2:]:
        assert gradient is not None
        assert torch.all(gradient[:, ~MASK] == 0)
        assert torch.all(gradient[:, MASK] != 0)


def test_the_gradient_of_log_prob_equals_that_of_torch() -> None:
    gradients = []
    for ours in (True, False):
        mean, std, action = some()
        mean.requires_grad_()
        std.requires_grad_()
        if ours:
            gaussian.log_prob(mean, std, action, MASK).sum().backward()
        else:
            Normal(mean, std).log_prob(action)[:, MASK].sum().backward()
        gradients.append((mean.grad, std.grad))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_masked_dimensions_of_a_sample_are_zero_even_if_their_mean_is_nan() -> None:
    mean, std, _ = some()
    mean[:, ~MASK] = float("nan")
    action = gaussian.sample(mean, std, MASK, torch.Generator().manual_seed(1))
    assert torch.all(action[:, ~MASK] == 0)
    assert torch.all(action[:, MASK] != 0)


def test_samples_have_the_given_mean_and_standard_deviation() -> None:
    rows = 40_000
    mean = torch.tensor([0.5, 0.0, -2.0, 0.0, 0.0]).expand(rows, 5)
    std = torch.tensor([0.1, 1.0, 2.0, 0.5, 1.0]).expand(rows, 5)
    action = gaussian.sample(mean, std, MASK, torch.Generator().manual_seed(2))
    # Five standard errors.
    error = 5 * std[0] / rows**0.5
    assert torch.all((action.mean(0) - mean[0]).abs()[MASK] < error[MASK])
    assert torch.all((action.std(0) - std[0]).abs()[MASK] < error[MASK])


def test_a_generator_in_the_same_state_gives_the_same_sample() -> None:
    mean, std, _ = some()
    one, same, other = (
        gaussian.sample(mean, std, MASK, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_log_probability_of_noise_equals_that_of_its_action() -> None:
    torch.manual_seed(0)
    mean, std, noise = torch.randn(6, 4), torch.rand(6, 4) + 0.1, torch.randn(6, 4)
    mask = torch.tensor([True, False, True, True])
    action = gaussian.displaced(mean, std, mask, noise)
    wanted = gaussian.log_prob(mean, std, action, mask)
    torch.testing.assert_close(gaussian.log_prob_of(std, mask, noise), wanted)
    std[:, 1] = torch.inf  # masked dimensions do not count
    torch.testing.assert_close(gaussian.log_prob_of(std, mask, noise), wanted)


def test_the_log_probability_of_a_switch_is_that_of_its_sign() -> None:
    mean, std, action = (tensor.double() for tensor in some())
    on = Normal(torch.zeros(()).double(), torch.ones(()).double()).cdf(mean[:, MASK] / std[:, MASK])
    reference = torch.where(action[:, MASK] >= 0.0, on, 1.0 - on).log().sum(-1)
    torch.testing.assert_close(gaussian.switch_log_prob(mean, std, action, MASK), reference)
    entropy = torch.distributions.Bernoulli(on).entropy().sum(-1)
    torch.testing.assert_close(gaussian.switch_entropy(mean, std, MASK), entropy)


def test_a_nearly_certain_switch_keeps_its_gradient() -> None:
    mean = torch.tensor([[-1.0]], requires_grad=True)
    std, action = torch.tensor([[0.05]]), torch.tensor([[0.01]])
    found = gaussian.switch_log_prob(mean, std, action, torch.tensor([True]))
    found.sum().backward()
    assert torch.isfinite(found).all() and mean.grad is not None and float(mean.grad) > 100.0
