"""Refusal of settings that do not fit into memory, with the largest values that fit."""

import dataclasses
import functools
import math
import re

import pytest

from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import size
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import ENCODER_NAMES, PolicySettings
from tpsrl.rl.run import sizes
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import machine

GIB = 2**30
CHANNELS, WIDTH = "preset.policy.encoder_width", "preset.policy.lstm_width"


@pytest.fixture(autouse=True)
def machine_of_16_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 16.0 * GIB)


@functools.cache
def shipped(name: str) -> TrainSettings:
    return config.load_preset("train", name, TrainSettings)


def preset(name: str = "cpu_fast", **changes: object) -> TrainSettings:
    base = shipped(name)
    policy = {k: v for k, v in changes.items() if hasattr(base.policy, k)}
    own = {k: v for k, v in changes.items() if k not in policy}
    return dataclasses.replace(base, policy=dataclasses.replace(base.policy, **policy), **own)


@pytest.mark.parametrize("name", config.preset_names("train"))
def test_every_preset_fits_into_memory(name: str) -> None:
    sizes.check(preset(name), 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "change", "depth"),
    [
        ("depth", {"num_envs": 1, "num_steps": 1}, 10**6),
        ("preset.num_envs", {"num_envs": 10**9}, 64),
        ("preset.num_steps", {"num_steps": 10**12}, 64),
        ("preset.policy.lstm_width", {"lstm_width": 10**7}, 64),
        ("preset.policy.state_width", {"state_width": 10**9}, 64),
        ("preset.policy.visual_width", {"visual_width": 10**12}, 64),
        ("preset.policy.encoder_width", {"encoder_width": 20_000}, 64),
        ("preset.policy.encoder_width", {"encoder_width": 10**30}, 64),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_the_largest_value_that_fits(
    field: str, change: dict[str, int], depth: int
) -> None:
    small = {"num_envs": 8, "num_steps": 64} | change
    with pytest.raises(UserError, match=rf"^{field}: .* 16\.0 GiB; [\d,]+ would fit") as refused:
        sizes.check(preset(**small), depth)
    found = re.search(r"([\d,]+) would fit", str(refused.value))
    assert found is not None
    fits = int(found[1].replace(",", ""))
    name = field.rpartition(".")[2]
    for value, fine in ((fits, True), (fits + 1, False)):
        now = depth if name != "depth" else value
        changed = preset(**(small if name == "depth" else small | {name: value}))
        if fine:
            sizes.check(changed, now)
        else:
            with pytest.raises(UserError):
                sizes.check(changed, now)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODER_NAMES)
def test_the_count_of_weights_is_exact_and_not_below_the_lower_bound(encoder: str) -> None:
    spec = EnvSpec({"state": (5,), "depth": (64, 64)}, (True,))
    narrow = PolicySettings(encoder, encoder_width=8, visual_width=32, lstm_width=16)
    other = {"encoder_width": 16, "separate_value": True, "lstm_layers": 0}
    for settings in (narrow, dataclasses.replace(narrow, **other)):
        count = size.count(spec, settings)
        built = sum(weight.numel() for weight in ActorCritic(spec, settings).parameters())
        assert count == built >= size.least(settings)


def test_if_two_values_are_too_large_the_error_assumes_all_others_small() -> None:
    with pytest.raises(UserError, match="with minimal values of all others"):
        sizes.check(preset(num_envs=10**9, lstm_width=10**7), 64)


def test_a_state_policy_needs_no_memory_for_pictures() -> None:
    sizes.check(preset("cpu_state"), 4096)


def test_the_number_of_ranks_is_limited_by_memory() -> None:
    sizes.check_ranks(42)
    with pytest.raises(UserError, match=r"^ranks: 1024 needs .* 16\.0 GiB; 42 would fit"):
        sizes.check_ranks(1024)


def test_the_memory_of_this_machine_is_plausible() -> None:
    assert math.isinf(machine.memory_bytes()) or machine.memory_bytes() > 2**28


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "pick", "depth=100000"], "depth: 100000 is out of range, must be between 1 and"),
        (["train", "pick", "preset.num_envs=1000000000"], "preset.num_envs: 1000000000 needs"),
        (["train", "pick", "preset.ppo.minibatches=3000"], "is more than the 2,048 steps of"),
        (["bench", "train", "preset.policy.lstm_width=10000000"], "preset.policy.lstm_width: "),
        (["train", "pick", "preset=cpu_fast", f"{CHANNELS}=100000"], f"{CHANNELS}: 100000 needs"),
        (["clone", "pick", "demos=x", f"{WIDTH}=10000000"], f"{WIDTH}: 10000000 needs"),
        (["bench", "sim", f"seconds={'7' * 400}"], "seconds: 777"),
        (["eval", "pick", f"num_episodes=1{'0' * 29}"], "must be between 1 and 1000000"),
        (["train", "pick", f"preset.steps=1{'0' * 29}"], "must be between 1 and 9007199254740992"),
        (["demos", "pick", "noise=1e15"], "noise: 1000000000000000.0 is out of range, must be b"),
        (["demos", "pick", "hesitation=9007199254740992"], "must be between 0 and 1000"),
        (["eval", "pick", "threads=2", "x\x1b[31m=1"], "unknown key 'threads'"),
        (["plan", "tidy_house", "x\x1b[31m=1"], r"unknown key 'x\x1b[31m'"),
        (["plan", "tidy_house", "a\nb=1"], r"unknown key 'a\nb'"),
        (["episodes", "tidy_house", "num=1", "out=/"], "out: '/' is a folder; name a file"),
    ],
)
def test_impossible_settings_and_unknown_keys_are_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].isprintable() and len(lines[0]) <= 320
    assert message in lines[0]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ppo.value_coef", 1e300, "must be between 0 and 1e+06"),
        ("ppo.epochs", 101, "must be between 1 and 100"),
        ("ppo.value_epochs", 10**9, "must be between 0 and 100"),
        ("ppo.adam_eps", 0.0, "must be between 1e-12"),
        ("ppo.learning_rate", 1e15, "must be between 0 and 10"),
        ("hang_s", 1e15, "must be between 1 and 86400"),
        ("inference_workers", 10**6, "must be between 1 and 1024"),
    ],
)
def test_implausible_training_settings_are_out_of_range(
    key: str, value: float, message: str
) -> None:
    with pytest.raises(
        UserError, match=f"^{key}: {re.escape(str(value))} is out of range"
    ) as error:
        config.check_range(TrainSettings, key, value)
    assert message in str(error.value)


def test_a_long_error_keeps_its_field_and_the_valid_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["plan", "x" * 5000]) == 2
    line = capsys.readouterr().err.strip()
    assert len(line) <= 320 and line.startswith("tpsrl: error: scenario: unknown value 'xxx")
    assert line.endswith("tidy_house, tidy_house_reachable)")
