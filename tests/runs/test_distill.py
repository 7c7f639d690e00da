"""Teachers that label every state, and students that learn from the labels."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_policies import policy as untrained
from tiny_policies import save
from toy_training import Silent, rows

from skills.core.inputs import PolicyInputs
from skills.envs.environment import SkillEnv
from skills.policies.learned import LearnedPolicy
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.learning.teaching import Label, MixedActor, Teacher
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.trainer import Trainer, TrainSchedule, TrainTask, load_latest

LENGTH = 6
SPEC = EnvSpec({"state": (2,), "critic": (3,)}, (True, True, True))
NETWORK = PolicySettings(
    encoder="state", state_width=16, lstm_layers=1, lstm_width=16, previous_action=False,
    critic=True, initial_std=0.1, min_std=0.01,
)  # fmt: skip
MEMORYLESS = PolicySettings(
    encoder="state", state_width=8, lstm_layers=0, previous_action=False, initial_std=0.2
)
SETTINGS = TrainSettings(
    name="tiny", steps=8 * 16 * 60, num_envs=8, num_steps=16, teacher_acts=0.2, policy=NETWORK,
    ppo=PPOSettings(
        surrogate=False, teacher_coef=1.0, auxiliary_coef=0.1, learning_rate=1e-2, epochs=1,
        entropy_coef=0.0, max_grad_norm=1.0,
    ),
)  # fmt: skip


class Memorise:
    """Environment that shows a number only in the first step; the critic's state always has it."""

    spec = SPEC

    def __init__(self, env_ids: Sequence[int]) -> None:
        self.num_envs = len(env_ids)
        self._names = list(env_ids)
        self._rngs = [np.random.default_rng((3, env)) for env in env_ids]
        self._state = np.zeros((self.num_envs, 3))  # number (2,), steps
        self.seconds: dict[str, float] = {}

    def reset(self, env_ids: Sequence[int]) -> Observation:
        for env in env_ids:
            self._state[env] = *self._rngs[env].uniform(-1.0, 1.0, 2), 0.0
        return self.observe(env_ids)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        true = self._state[list(env_ids)].astype(np.float32)
        seen = np.where(true[:, 2:] == 0.0, true[:, :2], 0.0)
        return {"state": seen, "critic": true}

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        own = list(env_ids)
        self._state[own, 2] += 1.0
        over = self._state[own, 2] >= LENGTH
        episodes = [
            EpisodeStats(self._names[env], 0, LENGTH, 0.0, False, "end")
            for env, ends in zip(own, over, strict=True)
            if ends
        ]
        if over.any():
            self.reset([env for env, ends in zip(own, over, strict=True) if ends])
        none = np.zeros(len(own))
        return StepBatch(
            self.observe(own), none.astype(np.float32), over, none > 0.0, None, episodes
        )

    def start_index(self, env_id: int) -> int:
        return 0

    def reseed(self, restarts: int) -> None:
        raise AssertionError("no worker is lost here")

    def avoid(self, starts: Sequence[int]) -> None:
        assert not starts

    def weigh(self, weights: np.ndarray) -> None:
        raise AssertionError("there are no groups")

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        rng = self._rngs[env_id].bit_generator.state
        return {"state": self._state[env_id].copy()}, {"rng": rng}

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        self._state[env_id] = arrays["state"]
        self._rngs[env_id].bit_generator.state = note["rng"]

    def close(self) -> None:
        pass


def teacher(**changes: Any) -> Teacher:
    torch.manual_seed(5)
    network = dataclasses.replace(MEMORYLESS, **changes)
    policy = ActorCritic(EnvSpec({"state": (2,)}, SPEC.mask), network)
    with torch.no_grad():
        policy.action_head.mean.weight.mul_(100.0)
    return Teacher(policy, [0, 1], switches=[2])


def trainer(out: Path, **changes: Any) -> Trainer:
    torch.set_num_threads(1)
    options: dict[str, Any] = {
        "settings": SETTINGS,
        "schedule": TrainSchedule(validation_episodes=0),
        "task": TrainTask(Memorise),
        "watcher": Silent(),
        "teacher": teacher(),
    }
    return Trainer(out=out, **(options | changes))


def test_a_student_with_memory_matches_a_privileged_teacher(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    assert one.train() == ""
    one.close()
    lost = [row["learner"]["teacher_loss"] for row in rows(tmp_path)]
    assert np.mean(lost[-5:]) < 0.1 * np.mean(lost[:5])
    read = [row["learner"]["auxiliary_loss"] for row in rows(tmp_path)]
    assert np.mean(read[-5:]) < 0.7 * np.mean(read[:5])


@pytest.mark.parametrize("changes", [{}, {"surrogate": True, "teacher_falls": True}])
def test_a_resumed_distillation_equals_an_uninterrupted_one(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    ppo = dataclasses.replace(SETTINGS.ppo, **changes)
    settings = dataclasses.replace(SETTINGS, steps=128 * 8, ppo=ppo)
    whole = trainer(tmp_path / "whole", settings=settings)
    assert whole.train() == ""
    whole.close()
    first = trainer(tmp_path / "parts", settings=settings)
    before = first.settings
    first.settings = dataclasses.replace(before, steps=128 * 3)
    for _ in range(3):
        first._records().close()
    first.settings = before
    for _ in range(3):
        first._update(False)
    first.save()
    first.close()
    second = trainer(tmp_path / "parts", settings=settings)
    second.resume(load_latest(tmp_path / "parts"))
    assert second.updates == 3 and second.train() == ""
    second.close()
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")[3:]
    for one, other in zip(second.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_weight_of_the_teacher_decreases_linearly(tmp_path: Path) -> None:
    ppo = dataclasses.replace(SETTINGS.ppo, teacher_falls=True, teacher_coef=0.5)
    one = trainer(tmp_path, settings=dataclasses.replace(SETTINGS, steps=128 * 4, ppo=ppo))
    one.train()
    one.close()
    weights = [row["learner"]["teacher_coef"] for row in rows(tmp_path)]
    assert weights == pytest.approx([0.5, 0.375, 0.25, 0.125])


def test_mixed_actions_interpolate_between_student_and_teacher() -> None:
    taught, student = teacher(), ActorCritic(SPEC, NETWORK)
    shown = {"state": torch.rand(4, 2), "critic": torch.rand(4, 3)}
    rest = torch.zeros(4, 3), student.initial_memory(4), torch.ones(4, dtype=torch.bool)
    own, label = student.act(shown, *rest).mean, taught.label(shown).mean
    for share, wanted in ((1.0, label), (0.0, own), (0.25, 0.25 * label + 0.75 * own)):
        step = MixedActor(student, taught, share).act(shown, *rest)
        torch.testing.assert_close(step.mean, wanted)
        torch.testing.assert_close(step.memory, student.act(shown, *rest).memory)


def test_errors_are_weighted_by_the_precision_of_the_teacher() -> None:
    taught, mask = teacher(), torch.tensor(SPEC.mask)
    label = Label(torch.tensor([[0.0, 0.0, 0.5]]), torch.tensor([[0.1, 0.2, 0.3]]))
    off = torch.tensor([[0.05, 0.4, 0.5]])  # half and two standard deviations, a switch that is on
    expected = (0.5 * 0.5**2 + (2.0 - 0.5)) / 2 - 0.2 * np.log(0.75)
    assert float(taught.distance(off, label, mask, 0.2)) == pytest.approx(expected, abs=1e-6)
    only = torch.tensor([True, False, False])
    assert float(taught.distance(off, label, only, 0.2)) == pytest.approx(0.125, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm_layers": 1, "lstm_width": 8}, "teacher: must act on the true state alone"),
        ({"previous_action": True}, "teacher: must not have its previous action"),
    ],
)
def test_a_policy_with_memory_or_previous_action_cannot_be_a_teacher(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        teacher(**changes)


def test_teacher_coef_without_a_teacher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="teacher_coef: there is no teacher"):
        trainer(tmp_path, teacher=None)


def test_labels_equal_the_actions_of_the_teacher_in_every_state(tmp_path: Path) -> None:
    made = untrained("pick", "teacher", dataclasses.replace(MEMORYLESS, state_width=32))
    path = save(tmp_path / "teacher.safetensors", *made)
    held = PolicyInputs.of("pick", "teacher")
    labels = Teacher(made[0], held.places(held).tolist())
    acts = LearnedPolicy("pick", path, sample=False)
    options: dict[str, Any] = {"num_objects": 12, "num_episodes": 1, "split": "val"}
    env = SkillEnv("pick", critic=True, sensors="fetch", depth=32, **options)
    shown, _ = env.reset(options={"start": 0})
    acts.begin(env.episode, env.goal, env.world)
    for _ in itertools.repeat(None, 25):
        action = acts.act(env.world, None, acts.measure(env.batch.simulator, 0))
        label = labels.label({"critic": torch.from_numpy(shown["critic"])[None]}).mean[0]
        counted = np.array(env.action_mask)
        np.testing.assert_allclose(label.numpy()[counted], action[counted], atol=1e-5)
        shown, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    env.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["teacher=nowhere"], "teacher: there is no"),
        (["teacher=LAME"], "teacher: must act on the true state alone"),
    ],
)
def test_a_distillation_refuses_an_invalid_teacher(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lame = save(tmp_path / "lame.safetensors", *untrained("pick", "teacher"))
    given = [word.replace("LAME", str(lame)) for word in words]
    assert cli.main(["distill", "pick", *given, f"out={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
