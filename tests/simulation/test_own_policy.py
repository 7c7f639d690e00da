"""Policies from a user's own class, alone and in plans."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from eval.running.evaluator import evaluate
from eval.running.skill_evaluator import evaluate_skill
from eval.settings import EvalSettings, SkillSettings
from skills.envs.environment import SkillEnv
from skills.policies.own import OwnPolicy, is_own
from skills.starts.source import start_episodes
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action as act

EXAMPLE = Path(__file__).parents[2] / "examples" / "policy" / "own_policy.py"

PRETRAINED = '''
from skills.gym import load_policy

POLICY = load_policy("pick", "pretrained")

class Mine:
    """The shipped policy, with its rules."""
    sensors = POLICY.inputs.sensors
    depth = POLICY.inputs.depth

    def reset(self):
        POLICY.reset()

    def act(self, observation):
        return POLICY.act(observation)
'''


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def lines(folder: Path) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return [
        {key: line[key] for key in ("success", "ended_by", "steps", "reward")} for line in found
    ]


def test_a_class_around_the_shipped_policy_acts_like_the_shipped_policy(tmp_path: Path) -> None:
    mine = f"{written(tmp_path, PRETRAINED, 'mine_pretrained.py')}:Mine"
    for agent, out, processes in (("pretrained", "a", 1), (mine, "b", 2)):
        words = ["skill=pick", f"agent={agent}", "num_objects=4", "num_episodes=2"]
        words.append(f"processes={processes}")
        report = evaluate_skill(
            config.load(SkillSettings, config.parse([*words, f"out={tmp_path / out}"]))
        )
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert report.learned["pick"].checkpoint == mine
    assert report.learned["pick"].privileged == []


def test_a_class_acts_in_a_plan(tmp_path: Path) -> None:
    text = """
class Still:
    sensors = "full"
    def reset(self): self.count = 0
    def act(self, observation):
        assert set(observation) == {"state"} and observation["state"].ndim == 1
        self.count += 1
        return [0.0] * 7 + [-1.0, 0.0, 0.0, 1.0 if self.count == 5 else -1.0]
"""
    path = written(tmp_path, text, "still.py")
    words = ["scenario=tidy_house", "num_episodes=1", "processes=1", "analysis_episodes=0"]
    own = f"skills.navigate={path}:Still"
    report = evaluate(
        config.load(EvalSettings, config.parse([*words, own, f"out={tmp_path / 'out'}"]))
    )
    assert report.agent == "mixed"
    assert report.learned["navigate"].privileged  # "full" includes privileged sensors
    episode = json.loads((tmp_path / "out" / "episodes.jsonl").read_text())
    assert episode["stages"][0]["ended_by"] == "skill_stop"  # at the fifth step of the skill


def test_an_own_policy_receives_the_observations_of_the_environment(tmp_path: Path) -> None:
    text = """
import numpy as np
class Noted:
    sensors = ("arm", "ee", "laser")
    depth = 48
    def reset(self): self.seen = []
    def act(self, observation):
        self.seen.append(observation)
        return np.full(11, 0.3)
"""
    policy = OwnPolicy("pick", f"{written(tmp_path, text, 'noted.py')}:Noted")
    (start,) = start_episodes("pick", range(1), "val", 3, 3)
    env = SkillEnv("pick", starts=[start], sensors=("arm", "ee", "laser"), depth=(48, 48))
    shown, _ = env.reset(options={"start": 0})
    policy.begin(env.episode, env.goal, env.world)
    for _ in range(4):
        measured = policy.measure(env.batch.simulator, 0) if policy.asks_engine else None
        action = policy.act(env.world, shown["depth"], measured)
        (own, expected), shown = (policy._policy.seen[-1], shown), env.step(action)[0]
        assert set(own) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(own[name], values)
    env.close()


def test_the_examples_adapt_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces both libraries by stubs of the functions that the examples call."""

    class PPO:
        @staticmethod
        def load(path: str, device: str) -> "PPO":
            assert (path, device) == ("mine.zip", "cpu")
            return PPO()

        def predict(self, seen: dict[str, np.ndarray], deterministic: bool) -> tuple[object, None]:
            assert deterministic and seen["depth"].shape == (64, 64)
            return np.full(11, 0.25), None

    class ACTPolicy:
        resets = 0

        @staticmethod
        def from_pretrained(folder: str) -> "ACTPolicy":
            assert folder == "lerobot_pick"
            return ACTPolicy()

        def reset(self) -> None:
            self.resets += 1

        def select_action(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            assert batch["observation.depth"].shape == (1, 3, 64, 64)
            assert batch["observation.state"].ndim == 2
            return torch.full((1, 11), -0.5)

    modules = {"stable_baselines3": {"PPO": PPO}}
    for part in ("lerobot", "lerobot.policies", "lerobot.policies.act"):
        modules[part] = {}
    modules["lerobot.policies.act.modeling_act"] = {"ACTPolicy": ACTPolicy}
    for name, values in modules.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("SB3_MODEL", "mine.zip")
    (start,) = start_episodes("pick", range(1), "val", 3, 3)
    env = SkillEnv("pick", starts=[start], sensors="fetch", depth=(64, 64))
    shown, _ = env.reset(options={"start": 0})
    for name, value in (("StableBaselinesPick", 0.25), ("LeRobotPick", -0.5)):
        policy = OwnPolicy("pick", f"{EXAMPLE}:{name}")
        policy.begin(env.episode, env.goal, env.world)
        action = policy.act(env.world, shown["depth"], policy.measure(env.batch.simulator, 0))
        np.testing.assert_allclose(action[: act.STOP], value)
    env.close()


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("class A: pass", "B", "class of .*: unknown value 'B' .valid: A"),
        ("class A: pass", "A", "has no method 'reset'"),
        ("class A:\n def reset(self): 0\n act = 3", "A", "has no method 'act'"),
        ("class A:\n sensors = 'fetsch'\n reset = act = print", "A", "sensors: unknown.*'fetch'"),
        ("class A:\n depth = (0, 3)\n reset = act = print", "A", r"depth: must be two sides of 1"),
        (
            "class A:\n def __init__(self): 1 / 0\n reset = act = print",
            "A",
            "cannot be created .Zero",
        ),
        ("raise ValueError('x')", "A", "cannot import .* .ValueError: x."),
    ],
)
def test_a_class_that_cannot_act_is_refused(
    tmp_path: Path, text: str, name: str, message: str
) -> None:
    file = written(tmp_path, text, f"{tmp_path.name}.py")  # a unique module name
    with pytest.raises(UserError, match=rf"^skills\.pick: .*{message}"):
        OwnPolicy("pick", f"{file}:{name}")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'x'", "act returned str, not numbers"),
        ("[0.0] * 10", r"act returned shape \(10,\), expected \(11,\)"),
        ("[float('nan')] * 11", "act returned numbers that are not finite"),
        ("1 / 0", r"act failed .ZeroDivisionError: division by zero; line \d+ of \w+.py"),
    ],
)
def test_an_invalid_action_is_refused(tmp_path: Path, returned: str, message: str) -> None:
    text = f"class A:\n sensors = 'full'\n def reset(self): 0\n def act(self, o): return {returned}"
    file = written(tmp_path, text, f"{tmp_path.name}.py")
    words = ["skill=pick", f"agent={file}:A", "num_objects=1", "num_episodes=1", "processes=1"]
    with pytest.raises(UserError, match=f"episode .*{message}"):
        evaluate_skill(
            config.load(SkillSettings, config.parse([*words, f"out={tmp_path / 'out'}"]))
        )
    assert not (tmp_path / "out" / "report.json").exists()


def test_agent_values_that_name_a_class_are_recognized() -> None:
    assert all(map(is_own, ("a.py:B", "/x y/a.py:B", "pkg.mod:B")))
    assert not any(map(is_own, ("a.py", "out/train/pick", "pretrained", "a.safetensors", "a.py:1")))
