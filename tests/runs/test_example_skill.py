"""The skill of docs/add_a_skill.md, from registration to a plan, in a file of its own."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from skills import registry
from skills.core import task
from skills.core.skill import Skill
from skills.core.state import Goals
from tpsrl import cli, config
from tpsrl.rl.run.checkpoint import load

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "skill" / "come_near.py"
NAME = "come_near"
TINY = [
    "preset=cpu_state", "preset.steps=1024", "preset.num_envs=8", "preset.num_steps=128",
    "preset.policy.lstm_width=32", "preset.policy.state_width=32", "processes=0", "threads=1",
    "validation_episodes=2", "validate_every=1024",
]  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes registrations, which otherwise last for the process shared by all tests."""
    monkeypatch.setenv(registry.VARIABLE, "")
    path = list(sys.path)
    yield
    registry.unregister(NAME)
    sys.modules.pop(NAME, None)
    sys.path[:] = path


def command(*words: str) -> None:
    assert cli.main([*words, f"skill_modules={FILE}"]) == 0


def test_the_example_is_trained_evaluated_and_used_in_a_plan(tmp_path: Path) -> None:
    trained, alone, chain = (str(tmp_path / name) for name in ("trained", "alone", "chain"))
    command("train", NAME, *TINY, f"out={trained}")
    assert load(f"{trained}/checkpoints/best.safetensors").note["steps"] == 1024
    command("eval", NAME, "num_episodes=2", "processes=1", f"agent={trained}", f"out={alone}")
    report = json.loads(Path(alone, "report.json").read_text())
    assert report["skill"] == NAME and {part["name"] for part in report["parts"]} == {
        "distance",
        "facing",
    }
    assert report["protocol_values"][f"skills.{NAME}.near_m"] == 1.2
    scenario = str(ROOT / "examples" / "scenario" / "clear_table.yaml")
    run = [f"actions=nav:{NAME}", "num_episodes=1", "processes=1", "analysis_episodes=0"]
    command("eval", scenario, *run, f"out={chain}")
    stages = json.loads(Path(chain, "report.json").read_text())["stages"]
    assert [stage["skill"] for stage in stages[:2]] == [NAME, "pick"]
    assert stages[0]["succeeded"] == 1


def test_the_scripted_version_of_the_example_succeeds(tmp_path: Path) -> None:
    command("eval", NAME, "num_episodes=3", "processes=1", f"out={tmp_path}")
    assert json.loads((tmp_path / "report.json").read_text())["success"]["mean"] > 0.6


def test_a_training_records_the_file_of_its_skill(tmp_path: Path) -> None:
    out = str(tmp_path / "trained")
    command("train", NAME, *TINY, "preset.steps=1024", f"out={out}")
    assert config.entry_of(Path(out) / "config.yaml", "skill_modules") == str(FILE)
    registry.unregister(NAME)
    sys.modules.pop(NAME)
    os.environ[registry.VARIABLE] = ""
    assert cli.main(["train", f"resume={out}", "preset.steps=2048"]) == 0
    assert load(f"{out}/checkpoints/latest.safetensors").note["steps"] == 2048


def test_the_example_is_a_gymnasium_environment() -> None:
    registry.load_modules(str(FILE))
    from skills import gym

    gym.register()
    env = gymnasium.make("tpsrl/ComeNear-v0")
    env.reset(seed=0)
    *_, info = env.step(env.action_space.sample())
    assert set(info["reward_terms"]) == {"success", "nearer", "slack", "constraint"}
    env.close()
    del gymnasium.registry["tpsrl/ComeNear-v0"]


def test_the_example_executes_an_action_only_if_named_for_it() -> None:
    registry.load_modules(str(FILE))
    assert registry.carrying_out("nav").name == "navigate"
    assert registry.carrying_out("nav", {"nav": NAME}).name == NAME


def test_the_example_gives_the_same_results_with_numpy_and_torch() -> None:
    from small_worlds import random_goals, random_worlds, to_torch

    registry.load_modules(str(FILE))
    spec = registry.get(NAME)
    rng = np.random.default_rng(0)
    worlds = random_worlds(rng, 50)
    goals, actions = random_goals(rng, worlds), rng.uniform(-1, 1, (50, 11))
    on_numpy = stepped(spec.definition, goals, worlds, actions, spec)
    tensors = to_torch(goals), to_torch(worlds), torch.from_numpy(actions)
    on_torch = stepped(spec.definition, *tensors, spec)
    np.testing.assert_allclose(on_numpy.reward, on_torch.reward.numpy())
    np.testing.assert_array_equal(on_numpy.success, on_torch.success.numpy())


def stepped(
    skill: Skill, goals: Goals, worlds: object, actions: object, spec: registry.SkillSpec
) -> task.StepOutcome:
    state = task.begin(skill, goals, worlds, spec.thresholds)
    after = (skill, state, actions, worlds, spec.load_settings(), spec.thresholds)
    return task.step(*after)[2]
