import dataclasses
import math
import os
import signal
from pathlib import Path

import pytest
import torch
from toy_training import ENVS, SETTINGS, STEPS, Silent, trainer

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.rl.run.averaging import PART, WeightAverage
from tpsrl.rl.run.trainer import load_latest

SMALL = PolicySettings(encoder="state", state_width=8, lstm_width=8)
AVERAGED = dataclasses.replace(SETTINGS, average_steps=2 * STEPS * ENVS)


def filled(value: float) -> ActorCritic:
    made = ActorCritic(EnvSpec({"state": (3,)}, (True,)), SMALL)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(value)
        for buffer in made.buffers():
            buffer.fill_(int(value))
    return made


def mean_of(average: WeightAverage) -> float:
    values = torch.cat([p.flatten() for p in average.policy.parameters()])
    assert torch.allclose(values, values[0])
    return float(values[0])


def test_the_first_updates_are_averaged_plainly_without_the_initial_weights() -> None:
    average = WeightAverage(filled(100.0), window=1_000)
    for value, steps in ((1.0, 10), (4.0, 20), (7.0, 10)):
        average.add(filled(value), steps)
    assert mean_of(average) == pytest.approx((10 * 1 + 20 * 4 + 10 * 7) / 40, abs=0.01)


def test_weights_count_by_a_factor_of_e_less_for_each_window_of_steps() -> None:
    average = WeightAverage(filled(0.0), window=100)
    for value in [0.0] * 50 + [1.0] * 20:
        average.add(filled(value), 10)
    assert mean_of(average) == pytest.approx(1.0 - math.exp(-2.0), abs=0.01)


def test_buffers_are_those_of_the_latest_policy() -> None:
    average = WeightAverage(filled(0.0), window=100)
    assert not any(bool(buffer.any()) for buffer in average.policy.buffers())
    average.add(filled(3.0), 10)
    average.add(filled(9.0), 10)
    assert all(bool(buffer.all()) for buffer in average.policy.buffers())
    assert mean_of(average) == pytest.approx(6.0)


@pytest.mark.slow
def test_the_best_checkpoint_has_mean_weights_and_the_latest_its_own(tmp_path: Path) -> None:
    one = trainer(tmp_path, settings=dataclasses.replace(AVERAGED, average_steps=10**9))
    seen = []
    learn = one.ppo.update

    def update(*args: object) -> object:
        result = learn(*args)  # type: ignore[arg-type]
        seen.append({n: p.detach().clone() for n, p in one.policy.named_parameters()})
        return result

    one.ppo.update = update  # type: ignore[method-assign, assignment]
    one.train()
    one.close()
    kept = checkpoint.load(tmp_path / "checkpoints" / checkpoint.BEST).part("policy")
    last = load_latest(tmp_path).part("policy")
    assert len(seen) == 10
    for name in seen[0]:
        wanted = torch.stack([weights[name] for weights in seen]).mean(0)
        torch.testing.assert_close(kept[name], wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(last[name], seen[-1][name])
    assert any(not torch.equal(kept[name], last[name]) for name in seen[0])


@pytest.mark.slow
def test_the_average_of_a_resumed_training_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", settings=AVERAGED)
    whole.train()
    whole.close()
    stop = Silent(4, lambda: os.kill(os.getpid(), signal.SIGTERM))
    first = trainer(tmp_path / "parts", stop, settings=AVERAGED)
    assert first.train() == "SIGTERM"
    first.close()
    second = trainer(tmp_path / "parts", settings=AVERAGED)
    second.resume(load_latest(tmp_path / "parts"))
    second.train()
    second.close()
    found, wanted = (load_latest(tmp_path / name).part(PART) for name in ("parts", "whole"))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.slow
def test_averaging_added_on_resume_starts_from_the_trained_weights(tmp_path: Path) -> None:
    first = trainer(tmp_path, settings=dataclasses.replace(SETTINGS, steps=48))
    first.train()
    first.close()
    second = trainer(tmp_path, settings=AVERAGED)
    second.resume(load_latest(tmp_path))
    for mean, own in zip(second.acting.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(mean, own)
    second.close()


def test_an_average_of_another_network_is_refused(tmp_path: Path) -> None:
    average = WeightAverage(filled(1.0), window=10)
    tensors = checkpoint.named(PART, {"encoder.weight": torch.zeros(2)})
    checkpoint.save(tmp_path / "other.safetensors", tensors, {PART: {"steps": 3}})
    with pytest.raises(UserError, match="has another network"):
        average.restore(checkpoint.load(tmp_path / "other.safetensors"))
