from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from eval.running import agents
from skills.core.interface import SkillGoal
from skills.envs import sensors as observation
from skills.envs.environment import EnvOptions, SkillEnv
from skills.envs.training import TrainingVecEnvFactory, deployment
from skills.policies.learned import LearnedPolicy
from skills.starts import draw as starts
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.world import action as act

STEPS = 5


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[starts.Start]]:
    """Starts of Pick among few objects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(starts, "BASE_EPISODES", 1)
        yield starts.start_episodes("pick", range(2), "val", 0, 4, processes=1)


def options(given: list[starts.Start], camera: bool) -> EnvOptions:
    return EnvOptions(starts=given, num_objects=4, depth=(32, 48) if camera else None)


def trained(folder: Path, settings: EnvOptions, delay: bool = False) -> ActorCritic:
    """A checkpoint of a network that was not trained, and the network."""
    torch.manual_seed(1)
    factory = TrainingVecEnvFactory("pick", settings)
    homes = factory([0])
    encoder = "se_resnet9" if settings.depth else "state"
    network = PolicySettings(
        encoder=encoder, encoder_width=4, visual_width=8, state_width=8, lstm_layers=1, lstm_width=8
    )
    policy = ActorCritic(homes.spec, network)
    with torch.no_grad():
        policy.action_head.mean.weight.mul_(100.0)  # so that what is seen makes a difference
    tensors, note = checkpoint.policy_part(policy)
    note |= {"deploy": deployment(factory, delay), "steps": 1_500_000}
    checkpoint.save(folder / "checkpoints" / "best.safetensors", tensors, note)
    homes.close()
    return policy.eval()


@pytest.mark.parametrize("camera", [False, True])
@pytest.mark.parametrize("delay", [False, True])
def test_a_learned_policy_sees_and_does_what_it_did_in_training(
    tmp_path: Path, given: list[starts.Start], camera: bool, delay: bool
) -> None:
    settings = options(given, camera)
    network = trained(tmp_path, settings, delay)
    policy = LearnedPolicy("pick", tmp_path, sample=False)
    assert policy.depth_size == settings.depth
    env = SkillEnv("pick", starts=given, num_objects=4, depth=settings.depth)
    for start in (0, 1):
        shown, _ = env.reset(options={"start": start})
        policy.begin(env.episode, env.goal, env.world)
        memory, previous = network.initial_memory(1), torch.zeros(1, act.SIZE)
        before, actions = shown, []
        for step in range(STEPS):
            seen = before if delay else shown
            inputs = {name: torch.from_numpy(values[None]) for name, values in seen.items()}
            with torch.inference_mode():
                expected = network.act(inputs, previous, memory, torch.tensor([step == 0]))
            assert expected.memory is not None
            action = policy.act(env.world, shown.get("depth"))
            wanted = expected.mean[0].clamp(-1.0, 1.0).numpy()
            np.testing.assert_allclose(action[:10], wanted[:10], atol=1e-6)
            assert action[act.STOP] == -1.0  # which Pick does not have
            memory, previous, before = expected.memory, expected.mean, shown
            shown, *_ = env.step(action)
            actions.append(action)
        assert np.ptp(actions, axis=0)[:10].max() > 1e-4
    env.close()


def test_a_navigator_without_camera_is_shown_the_way(
    tmp_path: Path, given: list[starts.Start]
) -> None:
    start = given[0]
    goal = SkillGoal(position=start.episode.objects[0].pos)
    drive = starts.Start(start.episode, goal)
    homes = TrainingVecEnvFactory("navigate", EnvOptions(starts=[drive], num_objects=4))
    own = homes([0])
    torch.manual_seed(2)
    network = ActorCritic(
        own.spec, PolicySettings(encoder="state", lstm_layers=0, state_width=8, initial_std=0.1)
    )
    with torch.no_grad():
        network.action_head.mean.weight.mul_(100.0)
    tensors, note = checkpoint.policy_part(network)
    deploy = deployment(homes, delay=False)
    assert "way" in deploy["sensors"]
    checkpoint.save(tmp_path / "a.safetensors", tensors, note | {"deploy": deploy})
    policy = LearnedPolicy("navigate", tmp_path / "a.safetensors", sample=False)
    env = SkillEnv("navigate", starts=[drive], num_objects=4)
    shown, _ = env.reset(options={"start": 0})
    places = observation.layout(tuple(deploy["sensors"]))
    left, *corner = shown["state"][places["way"]]
    assert left > 0.0 and np.abs(corner).max() > 0.0
    assert shown["state"][places["scan"]].min() > 0.2
    policy.begin(env.episode, env.goal, env.world)
    previous = torch.zeros(1, act.SIZE)
    for step in range(STEPS):
        inputs = {"state": torch.from_numpy(shown["state"][None])}
        with torch.inference_mode():
            expected = network.act(inputs, previous, torch.zeros(1, 0), torch.tensor([step == 0]))
        action = policy.act(env.world)
        wanted = expected.mean[0].clamp(-1.0, 1.0).numpy()
        np.testing.assert_allclose(action[act.BASE], wanted[act.BASE], atol=1e-6)
        previous = expected.mean
        shown, *_ = env.step(action)
    own.close()
    env.close()


def test_actions_may_be_drawn_and_an_episode_draws_the_same_again(
    tmp_path: Path, given: list[starts.Start]
) -> None:
    trained(tmp_path, options(given, camera=False))
    env = SkillEnv("pick", starts=given, num_objects=4)
    env.reset(options={"start": 0})
    drawn = []
    for sample in (True, True, False):
        policy = LearnedPolicy("pick", tmp_path, sample=sample)
        policy.begin(env.episode, env.goal, env.world)
        drawn.append(np.array([policy.act(env.world) for _ in range(3)]))
    env.close()
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.abs(drawn[0] - drawn[2]).max() > 0.05


def test_a_checkpoint_that_is_missing_or_of_another_skill_says_what_to_do(
    tmp_path: Path, given: list[starts.Start]
) -> None:
    with pytest.raises(UserError, match=r"skills.place: no checkpoint .*`tpsrl train place`"):
        LearnedPolicy("place", tmp_path)
    trained(tmp_path, options(given, camera=False))
    with pytest.raises(UserError, match=r"acts for pick; `tpsrl train place` makes one for place"):
        LearnedPolicy("place", tmp_path)
    path = tmp_path / "other.safetensors"
    tensors, note = checkpoint.policy_part(
        ActorCritic(EnvSpec({"state": (3,)}, (True,)), PolicySettings(encoder="state"))
    )
    checkpoint.save(path, tensors, note)
    with pytest.raises(UserError, match="no valid 'deploy'"):
        LearnedPolicy("pick", path)


def test_a_missing_checkpoint_ends_an_evaluation_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for words in (
        ["eval", "tidy_house", f"skills.pick={tmp_path}/none"],
        ["eval", "pick", f"agent={tmp_path}/none"],
        ["video", "pick", f"skills.pick={tmp_path}/none"],
    ):
        assert cli.main([*words, f"out={out}"]) == 2
        printed = capsys.readouterr()
        assert printed.err.count("\n") == 1
        assert "skills.pick: no checkpoint" in printed.err and "`tpsrl train pick`" in printed.err
    assert not out.exists()


def test_who_acted_is_stamped(tmp_path: Path, given: list[starts.Start]) -> None:
    trained(tmp_path, options(given, camera=False))
    assert agents.describe("scripted", {}) == {"agent": "scripted", "learned": {}}
    mixed = agents.describe("scripted", {"pick": str(tmp_path)})
    assert mixed["agent"] == "mixed"
    assert mixed["learned"]["pick"] == {"checkpoint": str(tmp_path), "trained_steps": 1_500_000}
    acting = agents.make("scripted", {"pick": str(tmp_path)})
    assert isinstance(acting["pick"], LearnedPolicy)
    assert not isinstance(acting["place"], LearnedPolicy)
