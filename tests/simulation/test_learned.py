import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from homes import FRIDGE, LAYOUT_A, episode

import skills.gym
import tpsrl.sim
from eval.presets import AgentPreset
from eval.running import agents
from skills.core.interface import SkillGoal
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.policies.deployed import Deployment
from skills.policies.learned import LearnedPolicy
from skills.registry import planned
from skills.starts import dataset
from skills.starts.source import start_episodes
from skills.starts.start import Start
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

STEPS = 5


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Start]]:
    """Returns starts of Pick among few objects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(dataset, "BASE_EPISODES", 1)
        yield start_episodes("pick", range(2), "val", 0, 4, processes=1)


def options(given: list[Start], camera: bool) -> EnvOptions:
    return EnvOptions.of("pick", starts=given, num_objects=4, depth=(32, 48) if camera else None)


def trained(folder: Path, settings: EnvOptions, delay: bool = False) -> ActorCritic:
    """Saves the checkpoint of an untrained network and returns the network."""
    torch.manual_seed(1)
    homes = TrainingVecEnvFactory(settings)([0])
    encoder = "se_resnet9" if settings.inputs.depth else "state"
    network = PolicySettings(
        encoder=encoder, encoder_width=4, visual_width=8, state_width=8, lstm_layers=1, lstm_width=8
    )
    policy = ActorCritic(homes.spec, network)
    with torch.no_grad():
        policy.action_head.mean.weight.mul_(100.0)  # makes actions depend on the observation
    tensors, note = checkpoint.policy_part(policy)
    note |= {"deploy": Deployment(settings.inputs, delay).to_json(), "steps": 1_500_000}
    checkpoint.save(folder / "checkpoints" / "best.safetensors", tensors, note)
    homes.close()
    return policy.eval()


@pytest.mark.parametrize("camera", [False, True])
@pytest.mark.parametrize("delay", [False, True])
def test_a_learned_policy_acts_on_the_same_observations_as_in_training(
    tmp_path: Path, given: list[Start], camera: bool, delay: bool
) -> None:
    settings = options(given, camera)
    network = trained(tmp_path, settings, delay)
    policy = LearnedPolicy("pick", tmp_path, sample=False)
    assert policy.depth_size == settings.inputs.depth
    env = SkillEnv("pick", starts=given, num_objects=4, depth=settings.inputs.depth)
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
            assert action[act.STOP] == -1.0  # Pick has no stop action
            memory, previous, before = expected.memory, expected.mean, shown
            shown, *_ = env.step(action)
            actions.append(action)
        assert np.ptp(actions, axis=0)[:10].max() > 1e-4
    env.close()


@pytest.mark.parametrize("delay", [False, True])
def test_a_policy_acts_on_gymnasium_observations_as_in_an_evaluation(
    tmp_path: Path, given: list[Start], delay: bool
) -> None:
    trained(tmp_path, options(given, camera=True), delay)
    theirs = LearnedPolicy("pick", tmp_path, sample=False)
    policy = skills.gym.load_policy("pick", tmp_path, sample=False)
    env = gymnasium.make(
        "tpsrl/Pick-v0", starts=given, num_objects=4, depth_channel=True, **policy.keywords
    )
    core = env.unwrapped
    for start in (0, 1):
        shown, _ = env.reset(options={"start": start})
        theirs.begin(core.episode, core.goal, core.world)
        policy.reset()
        for _ in range(STEPS):
            expected = theirs.act(core.world, shown["depth"][0])
            action = policy.act(shown)
            assert env.action_space.contains(action)
            np.testing.assert_allclose(action[:10], expected[:10], atol=1e-6)
            shown, *_ = env.step(action)
    env.close()


def test_a_policy_acts_in_a_vector_as_in_single_environments(
    tmp_path: Path, given: list[Start]
) -> None:
    trained(tmp_path, options(given, camera=False), delay=True)
    policy = skills.gym.load_policy("pick", tmp_path, sample=False)
    many = {"starts": given, "num_objects": 4, "horizon": 3, **policy.keywords}
    envs = gymnasium.make_vec("tpsrl/Pick-v0", 2, vectorization_mode="vector_entry_point", **many)
    alone = [skills.gym.load_policy("pick", tmp_path, sample=False) for _ in range(2)]
    shown, _ = envs.reset(seed=0)
    begun = np.array([True, True])
    for _ in range(6):
        actions = policy.act(shown, episode_start=begun)
        for home, one in enumerate(alone):
            if begun[home]:
                one.reset()
            wanted = one.act({name: values[home] for name, values in shown.items()})
            np.testing.assert_allclose(actions[home], wanted, atol=1e-6)
        shown, _, terminated, truncated, _ = envs.step(actions)
        begun = terminated | truncated
        if begun.any():  # the step after the last begins the next episode
            shown, *_ = envs.step(actions)
    envs.close()


def test_a_policy_refuses_invalid_observations(tmp_path: Path, given: list[Start]) -> None:
    trained(tmp_path, options(given, camera=True))
    policy = skills.gym.load_policy("pick", tmp_path)
    size = policy.inputs.size
    good = {"state": np.zeros(size, np.float32), "depth": np.zeros((32, 48), np.float32)}
    first = policy.act(good)
    policy.reset(seed=0)
    assert np.array_equal(policy.act(good), first)
    policy.reset(seed=1)
    assert not np.array_equal(policy.act(good), first)
    for wrong, message in (
        ({"state": good["state"]}, "observation: depth is missing"),
        (good | {"state": np.zeros(3)}, rf"observation: state: shape \(3,\), expected \({size},\)"),
        (good | {"depth": np.full((32, 48), np.nan)}, "observation: depth: must be finite"),
        (
            {name: np.stack([v, v]) for name, v in good.items()},
            "observation: has 2 environments, expected",
        ),
        (3, "observation: must be a dictionary"),
    ):
        with pytest.raises(UserError, match=message):
            policy.act(wrong)
    with pytest.raises(UserError, match=r"episode_start: must be a bool, got"):
        policy.act(good, episode_start=np.zeros(2, bool))


def navigator(folder: Path, drive: Start) -> ActorCritic:
    """Saves an untrained navigation policy without camera and returns its network."""
    settings = EnvOptions.of("navigate", starts=[drive], num_objects=4)
    homes = TrainingVecEnvFactory(settings)([0])
    torch.manual_seed(2)
    network = ActorCritic(
        homes.spec, PolicySettings(encoder="state", lstm_layers=0, state_width=8, initial_std=0.1)
    )
    homes.close()
    with torch.no_grad():
        network.action_head.mean.weight.mul_(100.0)
    tensors, note = checkpoint.policy_part(network)
    deploy = Deployment(settings.inputs, delay=False).to_json()
    checkpoint.save(folder / "a.safetensors", tensors, note | {"deploy": deploy})
    return network


def would_do(
    network: ActorCritic, shown: dict[str, np.ndarray], previous: torch.Tensor
) -> torch.Tensor:
    """Returns the mean action (1, 11) of a network without memory."""
    inputs = {name: torch.from_numpy(values[None]) for name, values in shown.items()}
    with torch.inference_mode():
        return network.act(inputs, previous, torch.zeros(1, 0), torch.tensor([False])).mean


def assert_acts_as_in_training(network: ActorCritic, policy: LearnedPolicy, env: SkillEnv) -> None:
    """Asserts that a policy acts on the observations of a training environment from its start."""
    shown, _ = env.reset(options={"start": 0})
    policy.begin(env.episode, env.goal, env.world)
    previous = torch.zeros(1, act.SIZE)
    for _ in range(STEPS):
        expected = would_do(network, shown, previous)
        action = policy.act(env.world)
        wanted = expected[0].clamp(-1.0, 1.0).numpy()
        np.testing.assert_allclose(action[act.BASE], wanted[act.BASE], atol=1e-6)
        previous = expected
        shown, *_ = env.step(action)


def test_a_navigation_policy_without_camera_observes_path_and_scan(
    tmp_path: Path, given: list[Start]
) -> None:
    start = given[0]
    drive = Start(start.episode, SkillGoal(position=start.episode.objects[0].pos))
    network = navigator(tmp_path, drive)
    policy = LearnedPolicy("navigate", tmp_path / "a.safetensors", sample=False)
    env = SkillEnv("navigate", starts=[drive], num_objects=4)
    shown, _ = env.reset(options={"start": 0})
    places = env.inputs.layout()
    left, *corner = shown["state"][places["way"]]
    assert left > 0.0 and np.abs(corner).max() > 0.0
    assert shown["state"][places["scan"]].min() > 0.2
    assert_acts_as_in_training(network, policy, env)
    env.close()


def test_a_navigation_policy_in_a_plan_observes_doors_opened_before(tmp_path: Path) -> None:
    goal, simulator = SkillGoal(position=(-1.9, -5.0, 0.8)), tpsrl.sim.make(slots=12)
    shut, wide = (
        episode(LAYOUT_A, (-1.4, -2.6, 0.0), articulation={FRIDGE: joint}) for joint in (0.0, 1.2)
    )
    simulator.reset([0], [wide])
    opened = Start(shut, goal, dataclasses.replace(simulator.snapshot(0), episode=shut))
    network = navigator(tmp_path, opened)
    policy = LearnedPolicy("navigate", tmp_path / "a.safetensors", sample=False)
    before = SkillEnv("navigate", simulator=simulator, starts=[opened])
    assert_acts_as_in_training(network, policy, before)
    # With the fridge closed, the action is different.
    none, seen = torch.zeros(1, act.SIZE), []
    for env in (before, SkillEnv("navigate", simulator=simulator, starts=[Start(shut, goal)])):
        shown, _ = env.reset(options={"start": 0})
        seen.append((env.world, would_do(network, shown, none)[0, act.BASE].clamp(-1, 1).numpy()))
    assert np.abs(seen[0][1] - seen[1][1]).max() > 0.01
    for world, wanted in (*seen, *seen):
        policy.begin(shut, goal, world)
        np.testing.assert_allclose(policy.act(world)[act.BASE], wanted, atol=1e-6)
    simulator.close()


def test_sampled_actions_of_an_episode_are_reproducible(tmp_path: Path, given: list[Start]) -> None:
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


def test_noise_depends_on_episode_and_start_step_and_is_reproducible(
    tmp_path: Path, given: list[Start]
) -> None:
    trained(tmp_path, options(given, camera=False))
    env = SkillEnv("pick", starts=given, num_objects=4)
    env.reset(options={"start": 0})
    record, goal, world = env.episode, env.goal, env.world
    env.close()
    # The ids differ only in their last characters, as in one dataset.
    first, second = (dataclasses.replace(record, id=f"pick_000000_of_{n:04}") for n in (1, 2))
    later = dataclasses.replace(world, step=world.step + 40)
    mean, policy = LearnedPolicy("pick", tmp_path, sample=False), LearnedPolicy("pick", tmp_path)

    def noise(episode: Episode, begun: WorldState) -> np.ndarray:
        """Returns the noise of the first action, whose mean depends only on the observation."""
        for one in (mean, policy):
            one.begin(episode, goal, begun)
        return policy.act(begun)[:10] - mean.act(begun)[:10]

    runs = list(itertools.product((first, second), (world, later)))
    noises = [noise(*run) for run in runs]
    for one, other in itertools.combinations(noises, 2):
        assert np.abs(one - other).max() > 0.05
    for run, expected in zip(reversed(runs), reversed(noises), strict=True):
        np.testing.assert_array_equal(noise(*run), expected)
    policy = LearnedPolicy("pick", tmp_path)
    np.testing.assert_array_equal(noise(*runs[1]), noises[1])


def test_a_checkpoint_that_is_missing_or_of_another_skill_is_refused(
    tmp_path: Path, given: list[Start]
) -> None:
    with pytest.raises(UserError, match=r"skills.place: no checkpoint .*`tpsrl train place`"):
        LearnedPolicy("place", tmp_path)
    trained(tmp_path, options(given, camera=False))
    with pytest.raises(
        UserError, match=r"is a policy for pick; train one with `tpsrl train place`"
    ):
        LearnedPolicy("place", tmp_path)
    path = tmp_path / "other.safetensors"
    tensors, note = checkpoint.policy_part(
        ActorCritic(EnvSpec({"state": (3,)}, (True,)), PolicySettings(encoder="state"))
    )
    checkpoint.save(path, tensors, note)
    with pytest.raises(UserError, match="has no 'deploy'"):
        LearnedPolicy("pick", path)


def test_a_missing_checkpoint_is_reported_before_an_evaluation_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for words, field in (
        (["eval", "tidy_house", f"skills.pick={tmp_path}/none"], "skills.pick"),
        (["eval", "pick", f"agent={tmp_path}/none"], "agent"),
        (["video", "pick", f"skills.pick={tmp_path}/none"], "skills.pick"),
    ):
        assert cli.main([*words, f"out={out}"]) == 2
        printed = capsys.readouterr()
        assert printed.err.count("\n") == 1
        assert f" {field}: there is no" in printed.err and "`tpsrl train pick`" in printed.err
    assert not out.exists()


def test_the_description_of_an_agent_names_its_checkpoints(
    tmp_path: Path, given: list[Start]
) -> None:
    trained(tmp_path, options(given, camera=False))
    assert agents.describe("scripted", {}) == {"agent": "scripted", "learned": {}}
    mixed = agents.describe("scripted", {"pick": str(tmp_path)})
    assert mixed["agent"] == "mixed"
    entry = mixed["learned"]["pick"]
    assert (entry["checkpoint"], entry["trained_steps"]) == (str(tmp_path), 1_500_000)
    assert (entry["sample"], entry["privileged"]) == (True, ["reach", "goal", "gap"])
    acting = agents.Policies(AgentPreset(), {"pick": str(tmp_path)})
    assert isinstance(acting["pick"], LearnedPolicy)
    assert not isinstance(acting["place"], LearnedPolicy)
    assert acting["place"] is acting["place"] and list(acting) == list(planned())
