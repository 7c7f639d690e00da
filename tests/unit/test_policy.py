import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic, PolicyStep
from tpsrl.rl.policy.recurrent import Pack
from tpsrl.rl.policy.settings import PolicySettings

MASK = (True, False, True, True)
ACTIONS, STATE, SIDE = len(MASK), 5, 32
LENGTHS = (7, 4, 4, 1)

SMALL = PolicySettings(
    encoder="state", encoder_width=4, visual_width=12, state_width=10, lstm_layers=2, lstm_width=6
)
KINDS = {
    "state": SMALL,
    "camera": dataclasses.replace(SMALL, encoder="se_resnet9", lstm_layers=1),
    "resnet18": dataclasses.replace(SMALL, encoder="resnet18"),
    "own value network": dataclasses.replace(SMALL, separate_value=True),
    "std by network": dataclasses.replace(SMALL, std="network", squash_mean=False),
    "no memory": dataclasses.replace(SMALL, lstm_layers=0, state_layers=2),
}

Rows = tuple[dict[str, torch.Tensor], torch.Tensor]


def policy(settings: PolicySettings, seed: int = 0) -> ActorCritic:
    """Returns a policy with noise on every parameter, so that none has its initial value."""
    torch.manual_seed(seed)
    spec = EnvSpec({"state": (STATE,), "depth": (SIDE, SIDE)}, MASK)
    made = ActorCritic(spec, settings)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def rows(count: int, seed: int = 1) -> Rows:
    """Returns random observations and previous actions of `count` rows."""
    generator = torch.Generator().manual_seed(seed)
    observation = {
        "state": torch.randn(count, STATE, generator=generator),
        "depth": torch.rand(count, SIDE, SIDE, generator=generator),
    }
    return observation, torch.randn(count, ACTIONS, generator=generator)


def take(data: Rows, places: list[int]) -> Rows:
    return {name: value[places] for name, value in data[0].items()}, data[1][places]


def steps(
    made: ActorCritic, data: Rows, lengths: tuple[int, ...], memory: torch.Tensor
) -> PolicyStep:
    """Returns outputs for rows in packed order, computed one sequence and one step at a time."""
    places = [[] for _ in lengths]
    row = 0
    for time in range(max(lengths)):
        for sequence, length in enumerate(lengths):
            if time < length:
                places[sequence].append(row)
                row += 1
    results = {}
    for sequence, own in enumerate(places):
        carried = memory[sequence : sequence + 1]
        for place in own:
            observation, previous = take(data, [place])
            step = made.act(observation, previous, carried, torch.tensor([False]))
            assert step.memory is not None
            carried = step.memory
            results[place] = step
    ordered = [results[place] for place in range(row)]
    mean, std, value, features = (
        torch.cat([getattr(s, n) for s in ordered]) for n in ("mean", "std", "value", "features")
    )
    return PolicyStep(mean, std, value, None, features)


def pack(lengths: tuple[int, ...], memory: torch.Tensor) -> Pack:
    sizes = [sum(time < length for length in lengths) for time in range(max(lengths))]
    return Pack(torch.tensor(sizes), memory)


def loss(made: ActorCritic, step: PolicyStep, data: Rows) -> torch.Tensor:
    log_prob = gaussian.log_prob(step.mean, step.std, data[1], made.mask)
    entropy = gaussian.entropy(step.std, made.mask)
    weights = torch.linspace(-1, 1, len(log_prob))
    return (weights * log_prob + step.value.square() + 0.1 * entropy).sum()


def gradients(made: ActorCritic, value: torch.Tensor) -> dict[str, torch.Tensor | None]:
    names, parameters = zip(*made.named_parameters(), strict=True)
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("lengths", [LENGTHS, (3, 3), (5,), (1, 1, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_equal_single_steps_including_gradients(
    kind: str, lengths: tuple[int, ...]
) -> None:
    made = policy(KINDS[kind])
    data = rows(sum(lengths))
    memory = torch.randn(len(lengths), made.memory_size)
    packed = made.evaluate(*data, pack(lengths, memory))
    single = steps(made, data, lengths, memory)
    for name in ("mean", "std", "value"):
        ours, theirs = getattr(packed, name), getattr(single, name)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    ours = gradients(made, loss(made, packed, data))
    theirs = gradients(made, loss(made, single, data))
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-3, atol=1e-3, msg=name)


def test_the_initial_memory_of_a_sequence_receives_its_gradient() -> None:
    made = policy(SMALL)
    data = rows(sum(LENGTHS))
    found = []
    for packed in (True, False):
        memory = torch.ones(len(LENGTHS), made.memory_size, requires_grad=True)
        if packed:
            step = made.evaluate(*data, pack(LENGTHS, memory))
        else:
            step = steps(made, data, LENGTHS, memory)
        loss(made, step, data).backward()
        found.append(memory.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_receives_a_gradient(kind: str) -> None:
    made = policy(KINDS[kind])
    data = rows(sum(LENGTHS))
    step = made.evaluate(*data, pack(LENGTHS, torch.zeros(len(LENGTHS), made.memory_size)))
    found = gradients(made, loss(made, step, data))
    assert [name for name, g in found.items() if g is None or not g.any()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_memory_and_previous_action_are_ignored_at_the_start_of_an_episode(kind: str) -> None:
    made = policy(KINDS[kind])
    observation, previous = rows(4)
    memory = torch.randn(4, made.memory_size)
    begun = torch.tensor([True, False, True, False])
    step = made.act(observation, previous, memory, begun)
    zeroed = made.act(
        observation,
        previous * ~begun[:, None],
        memory * ~begun[:, None],
        torch.zeros(4, dtype=torch.bool),
    )
    for name in ("mean", "std", "value", "memory"):
        assert torch.equal(getattr(step, name), getattr(zeroed, name))
    carried = made.act(observation, previous, memory, torch.zeros(4, dtype=torch.bool))
    changed = (carried.value != step.value).tolist()
    assert changed == begun.tolist()


def test_nan_in_the_memory_does_not_reach_the_next_episode() -> None:
    made = policy(SMALL)
    observation, previous = rows(2)
    memory = torch.full((2, made.memory_size), float("nan"))
    step = made.act(observation, previous, memory, torch.ones(2, dtype=torch.bool))
    assert step.memory is not None
    assert torch.all(torch.isfinite(step.memory))
    assert torch.all(torch.isfinite(step.value))


@pytest.mark.parametrize("kind", KINDS)
def test_masked_parts_of_previous_actions_and_actions_change_nothing(kind: str) -> None:
    made = policy(KINDS[kind])
    data = rows(sum(LENGTHS))
    other = data[0], torch.where(made.mask, data[1], float("nan"))
    memory = pack(LENGTHS, torch.zeros(len(LENGTHS), made.memory_size))
    first, second = made.evaluate(*data, memory), made.evaluate(*other, memory)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.value, second.value)
    ours = gradients(made, loss(made, first, data))
    theirs = gradients(made, loss(made, second, other))
    for name, gradient in ours.items():
        assert gradient is not None
        assert torch.equal(gradient, theirs[name]), name
    assert torch.all(first.mean[:, ~made.mask] == 0)


def test_outputs_for_masked_parts_receive_no_gradient() -> None:
    made = policy(SMALL)
    data = rows(sum(LENGTHS))
    step = made.evaluate(*data, pack(LENGTHS, torch.zeros(len(LENGTHS), made.memory_size)))
    found = gradients(made, loss(made, step, data))
    for name in ("action_head.mean.weight", "action_head.mean.bias", "action_head.log_std"):
        gradient = found[name]
        assert gradient is not None
        assert not gradient[~made.mask].any()
        assert gradient[made.mask].any()


def test_a_row_does_not_depend_on_the_rest_of_the_batch() -> None:
    made = policy(KINDS["camera"])
    data = rows(6)
    memory = torch.randn(6, made.memory_size)
    start = torch.tensor([True, False, False, True, False, False])
    whole = made.act(*data, memory, start)
    alone = made.act(*take(data, [3]), memory[3:4], start[3:4])
    for name in ("mean", "std", "value", "memory"):
        ours, theirs = getattr(alone, name)[0], getattr(whole, name)[3]
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_previous_action_and_the_memory_affect_the_value() -> None:
    made = policy(SMALL)
    observation, previous = rows(3)
    memory = torch.randn(3, made.memory_size)
    going = torch.zeros(3, dtype=torch.bool)
    value = made.act(observation, previous, memory, going).value
    assert torch.all(made.act(observation, -previous, memory, going).value != value)
    assert torch.all(made.act(observation, previous, -memory, going).value != value)


def test_outputs_have_the_documented_shapes() -> None:
    made = policy(KINDS["own value network"])
    assert made.memory_size == 2 * (2 * 2 * 6)
    step = made.act(*rows(3), made.initial_memory(3), torch.ones(3, dtype=torch.bool))
    assert step.mean.shape == step.std.shape == (3, ACTIONS)
    assert step.value.shape == (3,)
    assert step.memory is not None and step.memory.shape == (3, made.memory_size)
    assert policy(KINDS["no memory"]).memory_size == 0


def test_the_state_encoder_ignores_the_camera() -> None:
    made = policy(SMALL)
    observation, previous = rows(3)
    arguments = previous, made.initial_memory(3), torch.ones(3, dtype=torch.bool)
    blind = {"state": observation["state"]}
    assert torch.equal(made.act(observation, *arguments).value, made.act(blind, *arguments).value)
    bare = ActorCritic(EnvSpec({"state": (STATE,)}, MASK), SMALL)
    assert bare.state_dict().keys() == made.state_dict().keys()


def test_changes_beyond_the_sight_distance_do_not_affect_a_policy() -> None:
    torch.manual_seed(0)
    shapes = {"state": (STATE,), "depth": (SIDE, SIDE)}
    spec = EnvSpec(shapes, MASK, rays=(1, 3), far=10.0)
    made = ActorCritic(spec, dataclasses.replace(KINDS["camera"], sight=2.0, magnify_state=True))
    observation, previous = rows(2)
    observation["state"][:, 1:3] = torch.tensor([1.5, 2.5])
    observation["depth"][:, :, 0], observation["depth"][:, :, 1] = 0.15, 0.25

    def mean(**changed: torch.Tensor) -> torch.Tensor:
        shown = {**observation, **changed}
        first = torch.ones(2, dtype=torch.bool)
        return made.act(shown, previous, made.initial_memory(2), first).mean

    def moved(name: str, *where: slice | int, by: float) -> torch.Tensor:
        values = observation[name].clone()
        values[(slice(None), *where)] += by
        return values

    at_first = mean()
    # The second ray and the second column of pixels are already beyond the sight of 2 m.
    assert torch.equal(mean(state=moved("state", 2, by=1.0)), at_first)
    assert torch.equal(mean(depth=moved("depth", slice(None), 1, by=0.1)), at_first)
    # Changes within sight have an effect, and so do other entries of the state.
    for changed in (
        {"state": moved("state", 2, by=-1.0)},
        {"state": moved("state", 1, by=-0.5)},
        {"state": moved("state", 0, by=5.0)},
        {"depth": moved("depth", slice(None), 0, by=-0.05)},
        {"depth": moved("depth", slice(None), 1, by=-0.1)},
    ):
        assert not torch.equal(mean(**changed), at_first)


def test_an_untrained_policy_acts_near_zero_with_the_initial_std() -> None:
    torch.manual_seed(0)
    spec = EnvSpec({"state": (STATE,)}, MASK)
    for std in ("parameter", "network"):
        made = ActorCritic(spec, dataclasses.replace(SMALL, std=std, initial_std=0.4))
        step = made.act(*rows(50), made.initial_memory(50), torch.ones(50, dtype=torch.bool))
        assert step.mean.abs().max() < 0.05
        torch.testing.assert_close(step.std, torch.full((50, ACTIONS), 0.4), rtol=0.05, atol=0.0)


@pytest.mark.parametrize(("start", "bound", "direction"), [(-9.0, 0.1, 1), (9.0, 1.0, -1)])
@pytest.mark.parametrize("std", ["parameter", "network"])
def test_the_std_stays_within_its_bounds_and_can_move_back_from_them(
    std: str, start: float, bound: float, direction: int
) -> None:
    made = policy(dataclasses.replace(SMALL, std=std, min_std=0.1, max_std=1.0, initial_std=0.5))
    head = made.action_head
    log_std = head.log_std if head.log_std is not None else head.std.bias
    with torch.no_grad():
        log_std.fill_(start)
    step = made.act(*rows(4), made.initial_memory(4), torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(step.std, torch.full((4, ACTIONS), bound))
    entropy = gaussian.entropy(step.std, made.mask).sum()
    for sign in (1, -1):
        (gradient,) = torch.autograd.grad(-sign * entropy, log_std, retain_graph=True)
        # Descent raises the entropy for sign 1; at a bound, only moves back inside have a gradient.
        moves = -gradient[made.mask].sign()
        assert torch.all(moves == (sign if sign == direction else 0))


def test_switches_may_have_their_own_std() -> None:
    spec = EnvSpec({"state": (4,)}, (True,) * 3, switches=(2,))
    data = {"state": torch.randn(5, 4)}
    for own, expected in ((0.0, 0.05), (0.4, 0.4)):
        settings = PolicySettings(
            encoder="state", lstm_layers=0, initial_std=0.1, switches=True, switch_std=own
        )
        made = ActorCritic(spec, settings)
        made.action_head.bound(0.05)  # upper bound for the other parts, as late in a training
        std = made.act(
            data, torch.zeros(5, 3), made.initial_memory(5), torch.ones(5, dtype=torch.bool)
        ).std
        torch.testing.assert_close(std[:, :2], torch.full((5, 2), 0.05))
        torch.testing.assert_close(std[:, 2], torch.full((5,), expected))


def test_squash_mean_keeps_means_within_one() -> None:
    for squash in (True, False):
        made = policy(dataclasses.replace(SMALL, squash_mean=squash))
        with torch.no_grad():
            made.action_head.mean.bias.fill_(3.0)
        step = made.act(*rows(4), made.initial_memory(4), torch.ones(4, dtype=torch.bool))
        assert bool((step.mean.abs() <= 1).all()) is squash


@pytest.mark.parametrize("kind", ["camera", "resnet18", "own value network"])
def test_bfloat16_is_close_to_float32_and_outputs_are_float32(kind: str) -> None:
    half = dataclasses.replace(KINDS[kind], dtype="bfloat16")
    exact, rough = policy(KINDS[kind]), policy(half)
    data = rows(sum(LENGTHS))
    memory = torch.randn(len(LENGTHS), exact.memory_size)
    start = torch.zeros(len(LENGTHS), dtype=torch.bool)
    first = take(data, list(range(len(LENGTHS))))
    acted = [made.act(*first, memory, start) for made in (exact, rough)]
    packed = [made.evaluate(*data, pack(LENGTHS, memory)) for made in (exact, rough)]
    for one, other in (acted, packed):
        for name in ("mean", "std", "value"):
            ours, theirs = getattr(one, name), getattr(other, name)
            assert theirs.dtype == torch.float32
            torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.05)
        assert not torch.equal(one.value, other.value)
    assert acted[1].memory is not None and acted[1].memory.dtype == torch.float32
    loss(rough, packed[1], data).backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in rough.parameters())


def test_only_encoders_are_compiled_and_weights_keep_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    def stand_in(call: Callable[..., Any], backend: str, dynamic: bool) -> Callable[..., Any]:
        assert backend == "inductor" and dynamic

        def run(*inputs: Any) -> Any:
            compiled.append(type(call.__self__).__name__)
            return call(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", stand_in)
    settings = dataclasses.replace(KINDS["camera"], separate_value=True)
    plain, made = (policy(settings) for _ in range(2))
    made.compile_encoders()
    data = rows(3)
    inputs = (*data, made.initial_memory(3), torch.zeros(3, dtype=torch.bool))
    assert torch.equal(made.act(*inputs).mean, plain.act(*inputs).mean)
    assert compiled == ["SeResNet9"] * 2
    assert plain.state_dict().keys() == made.state_dict().keys()


def test_loading_weights_makes_two_policies_equal() -> None:
    one, other = policy(KINDS["camera"], seed=0), policy(KINDS["camera"], seed=1)
    other.load_state_dict(one.state_dict())
    data, start = rows(3), torch.zeros(3, dtype=torch.bool)
    memory = torch.randn(3, one.memory_size)
    ours, theirs = one.act(*data, memory, start), other.act(*data, memory, start)
    assert torch.equal(ours.value, theirs.value)
    assert torch.equal(ours.mean, theirs.mean)


def test_settings_survive_a_round_trip_through_json() -> None:
    settings = PolicySettings(
        encoder="se_resnet9",
        separate_value=True,
        std="network",
        min_std=1e-05,
        initial_std=1 / 3,
        dtype="bfloat16",
    )
    assert PolicySettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lstm_widht": 3}, "unknown value 'lstm_widht'; did you mean 'lstm_width'"),
        ({"lstm_width": 0}, "lstm_width: 0 is out of range"),
        ({"lstm_width": "wide"}, "lstm_width: must be an integer, got 'wide'"),
        ({"std": "net"}, "std: unknown value 'net'; did you mean 'network'"),
        ({"dtype": None}, "dtype: unknown value 'None'"),
    ],
)
def test_invalid_settings_are_an_error(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        PolicySettings.from_json(SMALL.to_json() | change)


def test_settings_that_lack_an_entry_are_an_error() -> None:
    note = SMALL.to_json()
    del note["lstm_layers"]
    with pytest.raises(UserError, match="policy settings: lstm_layers missing"):
        PolicySettings.from_json(note)


def test_settings_are_read_from_the_command_line() -> None:
    settings = config.load(
        PolicySettings, config.parse(["encoder=state", "std=network", "lstm_layers=0"])
    )
    assert settings == PolicySettings(encoder="state", std="network", lstm_layers=0)


def test_a_policy_that_cannot_be_built_is_an_error_that_names_the_field() -> None:
    spec = EnvSpec({"state": (STATE,)}, MASK)
    with pytest.raises(UserError, match="encoder: unknown value 'sate'; did you mean 'state'"):
        ActorCritic(spec, dataclasses.replace(SMALL, encoder="sate"))
    with pytest.raises(UserError, match="encoder: 'resnet18' needs a depth image"):
        ActorCritic(spec, dataclasses.replace(SMALL, encoder="resnet18"))
    with pytest.raises(UserError, match=r"initial_std: 0\.001 is not between"):
        ActorCritic(spec, dataclasses.replace(SMALL, initial_std=0.001))


def test_a_new_policy_starts_with_the_initial_mean_of_the_environment() -> None:
    spec = EnvSpec({"state": (3,)}, (True, True, True), (0.0, -0.9, 0.5))
    for squash in (True, False):
        settings = PolicySettings(encoder="state", lstm_layers=0, squash_mean=squash)
        policy = ActorCritic(spec, settings)
        step = policy.act(
            {"state": torch.randn(200, 3)},
            torch.zeros(200, 3),
            torch.zeros(200, 0),
            torch.zeros(200, dtype=torch.bool),
        )
        torch.testing.assert_close(
            step.mean.mean(0), torch.tensor(spec.initial_mean), atol=0.05, rtol=0
        )


@pytest.mark.parametrize("std", ["parameter", "network"])
def test_a_new_policy_starts_with_the_initial_std_of_the_environment(std: str) -> None:
    spec = EnvSpec({"state": (3,)}, (True, True, True), (), (0.0, 0.2, 100.0))
    policy = ActorCritic(spec, dataclasses.replace(SMALL, encoder="state", std=std))
    memory, previous = policy.initial_memory(1), torch.zeros(1, 3)
    step = policy.act({"state": torch.zeros(1, 3)}, previous, memory, torch.ones(1).bool())
    torch.testing.assert_close(step.std[0], torch.tensor([0.37, 0.2, 7.4]))
