"""Ranks that train together."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from toy_vec_env import ToyVecEnvFactory

from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.distributed import group as groups
from tpsrl.rl.distributed.group import Alone, Group
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.trainer import Trainer, TrainSchedule, TrainTask, load_latest
from tpsrl.training import loading
from tpsrl.training import ranks as training_ranks

ENVS, STEPS = 4, 12
TINY = PolicySettings(encoder="state", state_width=8, lstm_layers=1, lstm_width=8)
# With one step on the whole gradient, Adam's first moment is a tenth of the gradient.
ONCE = PPOSettings(
    epochs=1,
    minibatches=1,
    max_grad_norm=0.0,
    normalise_advantage=True,
    importance_max=2.0,
    entropy_coef=0.01,
    entropy_target=0.5,
)


def settings(envs: int = ENVS, **changes: Any) -> TrainSettings:
    ppo = dataclasses.replace(ONCE, **changes)
    return TrainSettings(num_envs=envs, num_steps=STEPS, preempt="none", policy=TINY, ppo=ppo)


def primitives(group: Group) -> dict[str, Any]:
    """Returns the result of each collective call for values that differ between ranks."""
    pair = [torch.full((2, 2), float(group.rank)), torch.tensor([1.0 + group.rank])]
    group.average(pair, 1.0 + 2.0 * group.rank)
    return {
        "totals": group.totals([1.0, 10.0 * group.rank]),
        "average": [t.tolist() for t in pair],
        "any": (group.any(group.rank == 1), group.any(False)),
        "gather": group.gather({"rank": group.rank}),
        "share": group.share(f"of {group.rank}"),
        "is": (group.rank, group.size),
    }


def test_collective_calls_give_sums_means_and_objects_of_all_ranks(tmp_path: Path) -> None:
    for rank, found in enumerate(ranks.run(3, primitives, tmp_path)):
        weight = 1.0 + 3.0 + 5.0
        mean = (0.0 * 1.0 + 1.0 * 3.0 + 2.0 * 5.0) / weight
        assert found["totals"] == [3.0, 30.0]
        first, second = found["average"]
        assert first == [[pytest.approx(mean)] * 2] * 2
        assert second == [pytest.approx(1.0 + mean)]
        assert found["any"] == (True, False)
        assert found["gather"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert found["share"] == "of 0"
        assert found["is"] == (rank, 3)


def test_a_single_rank_has_the_same_calls() -> None:
    alone, kept = Alone(), torch.tensor([1.0, 2.0])
    alone.average([kept], 7.0)
    assert kept.tolist() == [1.0, 2.0]
    assert alone.totals([3.0]) == [3.0] and alone.any(True) and not alone.any(False)
    assert alone.gather(5) == [5] and alone.share(5) == 5


def learned(group: Group, own: TrainSettings, lost: int = 0) -> dict[str, Any]:
    """Returns results of an update of this rank without `lost` steps of its rollout."""
    made = assemble(own, ToyVecEnvFactory(), seed=3, group=group)
    rollout = made.collector.collect(made.policy, made.rollouts).rollout
    if lost:
        rollout._rows, rollout.num_fresh = rollout.rows[lost:], rollout.num_fresh - lost
    metrics = made.ppo.update(rollout)
    made.collector.close()
    state, _ = made.ppo.state_dict()
    return {
        "gradient": {k: v for k, v in state.items() if k.startswith("adam.exp_avg.")},
        "entropy": state["entropy.exp_avg"],
        "metrics": metrics,
        "rewards": rollout.reward[rollout.rows].sum(),
        "policy": {k: v.clone() for k, v in made.policy.state_dict().items()},
    }


def test_the_gradient_of_ranks_is_that_of_one_rank_with_all_experience(tmp_path: Path) -> None:
    two = ranks.run(2, learned, tmp_path, settings())
    (one,) = ranks.run(1, learned, tmp_path, settings(2 * ENVS))
    assert two[0]["rewards"] != two[1]["rewards"]
    assert two[0]["rewards"] + two[1]["rewards"] == pytest.approx(one["rewards"])
    for found in two:
        for name, expected in one["gradient"].items():
            torch.testing.assert_close(found["gradient"][name], expected, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(found["entropy"], one["entropy"], rtol=1e-4, atol=1e-7)
        for name in ("policy_loss", "value_loss", "entropy", "grad_norm"):
            assert found["metrics"][name] == pytest.approx(one["metrics"][name], rel=1e-3, abs=1e-5)


def gradients(group: Group) -> dict[str, dict[str, torch.Tensor]]:
    """Returns gradients of a rank alone and of both; rank 1 has a third of rank 0's fresh steps."""
    plain = settings(normalise_advantage=False, importance_max=0.0, entropy_coef=0.0)
    alike = dataclasses.replace(plain, ppo=dataclasses.replace(plain.ppo, equal_ranks=True))
    lost = group.rank * 2 * ENVS * STEPS // 3
    made = {
        "apart": learned(_Muted(group), plain, lost),
        "by steps": learned(group, plain, lost),
        "alike": learned(group, alike, lost),
    }
    return {name: found["gradient"] for name, found in made.items()}


def followed(group: Group, own: TrainSettings) -> dict[str, torch.Tensor]:
    """Returns a rank's observation moments after one update, and its observations."""
    own = dataclasses.replace(own, policy=dataclasses.replace(TINY, normalise_observations=True))
    made = assemble(own, ToyVecEnvFactory(), seed=3, group=group)
    rollout = made.collector.collect(made.policy, made.rollouts).rollout
    made.ppo.update(rollout)
    made.collector.close()
    seen = rollout.observation["state"][torch.as_tensor(rollout.rows)]
    return {"seen": seen, **made.policy.moments["state"].state_dict()}


def test_observation_moments_are_those_of_all_ranks_together(tmp_path: Path) -> None:
    first, second = ranks.run(2, followed, tmp_path, settings())
    seen = torch.cat([first["seen"], second["seen"]]).double()
    for found in (first, second):
        assert int(found["count"]) == len(seen) == 2 * ENVS * STEPS
        torch.testing.assert_close(found["mean"], seen.mean(0))
        torch.testing.assert_close(found["variance"], seen.var(0, correction=0))
    assert not torch.equal(first["seen"], second["seen"])
    assert torch.equal(first["mean"], second["mean"])


class _Muted(Alone):
    """Group that has the environments of a rank but trains alone."""

    def __init__(self, group: Group) -> None:
        self.rank, self.size = group.rank, group.size


def test_ranks_are_weighted_by_fresh_steps_or_equally(tmp_path: Path) -> None:
    first, second = ranks.run(2, gradients, tmp_path)
    for together, share in (("by steps", 0.75), ("alike", 0.5)):
        for name, found in first[together].items():
            expected = share * first["apart"][name] + (1.0 - share) * second["apart"][name]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
            assert torch.equal(found, second[together][name])


def poisoned(group: Group, own: TrainSettings) -> tuple[str, bool]:
    """Runs an update in which rank 1 has values that are not finite."""
    made = assemble(own, ToyVecEnvFactory(), seed=3, group=group)
    rollout = made.collector.collect(made.policy, made.rollouts).rollout
    before = {k: v.clone() for k, v in made.policy.state_dict().items()}
    if group.rank == 1:
        rollout.returns[:] = float("nan")
        rollout.reward[:] = float("nan")
    try:
        made.ppo.update(rollout)
        message = ""
    except Exception as error:
        message = str(error)
    made.collector.close()
    after = made.policy.state_dict()
    return message, all(torch.equal(before[name], after[name]) for name in before)


def test_values_that_are_not_finite_on_one_rank_stop_all_ranks(tmp_path: Path) -> None:
    for message, kept in ranks.run(2, poisoned, tmp_path, settings()):
        assert "not finite" in message and kept


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "two"}, "RANK: 'two' is not an integer; start it by torchrun"),
        ({"RANK": "2"}, "RANK: 2 is out of range, must be between 0 and 1"),
        ({"MASTER_PORT": ""}, "MASTER_PORT: not set, but WORLD_SIZE is 2"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT: 70000 is out of range, must be between 1 and"),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE: 'many' is not an integer"),
        ({"WORLD_SIZE": "1_0"}, "WORLD_SIZE: '1_0' is not an integer"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE: 0 is out of range, must be between 1 and"),
        ({"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE: 3 is out of range, must be between 1 and 2"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK: 2 is out of range, must be between 0 and 1"),
    ],
)
def test_inconsistent_variables_of_a_job_are_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str
) -> None:
    job = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in (job | changes).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        groups.join(torch.device("cpu"))


def test_a_restarted_job_resumes_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out/train/pick"
    monkeypatch.chdir(tmp_path)
    given = {"skill": "pick", "init": "policy.safetensors", "preset.steps": "10"}
    assert loading.resumed({**given, "resume": "auto"}) == given
    assert loading.resumed(given) == given
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints/latest.safetensors").touch()
    assert loading.resumed(given) == given
    going_on = {"resume": "out/train/pick", "skill": "pick", "preset.steps": "10"}
    assert loading.resumed({**given, "resume": "auto"}) == going_on
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    assert loading.resumed(given) == given  # another job has started the training
    (out / "config.yaml").write_text("# torchrun 7\nskill: pick\n")
    assert loading.resumed(given) == going_on
    resumed = {"resume": str(out), "skill": "pick"}
    assert loading.resumed({"skill": "pick", "out": str(out)}) == resumed
    elsewhere = {"skill": "pick", "resume": "elsewhere"}
    assert loading.resumed(elsewhere) == elsewhere


@pytest.mark.parametrize("load", [loading.training, loading.distillation])
def test_every_rank_has_the_settings_of_the_command(load: Any) -> None:
    settings = load({"skill": "place", "ranks": 2, "preset.steps": 5_000, "task.horizon": 90})
    assert cli.parse(training_ranks.words_of(settings)[1:])[1] == settings


class Silent:
    """Watcher of a training that prints nothing."""

    def update(self, row: dict[str, Any]) -> None: ...

    def say(self, text: str) -> None: ...


def trained(group: Group, out: Path, updates: int, goes_on: bool) -> dict[str, Any]:
    """Returns weights and learner state of a rank after `updates` updates of all ranks."""
    own = settings(
        epochs=2, minibatches=2, target_kl=0.05, optimizer="lamb", base_batch=4, auxiliary="cpca"
    )
    policy = dataclasses.replace(TINY, normalise_observations=True)
    steps = updates * ENVS * STEPS * group.size
    own = dataclasses.replace(own, preempt="share", steps=steps, policy=policy)
    task = TrainTask(ToyVecEnvFactory())
    schedule = TrainSchedule(validation_episodes=0)
    one = Trainer(own, schedule, out, task, Silent(), seed=3, group=group, logger="none")
    if goes_on:
        one.resume(load_latest(out))
    assert one.train() == ""
    one.close()
    tensors, _ = one.ppo.state_dict()  # Adam's moments and the entropy coefficient
    found = {**one.policy.state_dict(), **tensors}
    # Random states differ between ranks.
    found = {k: v for k, v in found.items() if v.is_floating_point()}
    return {"updates": one.updates, "weights": {k: v.clone() for k, v in found.items()}}


def test_ranks_have_the_same_weights_after_updates_and_after_a_resume(tmp_path: Path) -> None:
    before: dict[str, torch.Tensor] = {}
    for folder, updates, goes_on in (("first", 3, False), ("second", 5, True)):
        (tmp_path / folder).mkdir()
        first, *others = ranks.run(
            3, trained, tmp_path / folder, tmp_path / "out", updates, goes_on
        )
        assert first["updates"] >= updates
        for other in others:
            assert other["weights"].keys() == first["weights"].keys()
            for name, weight in first["weights"].items():
                assert torch.equal(other["weights"][name], weight), name
        assert any(not torch.equal(w, first["weights"][n]) for n, w in before.items()) == goes_on
        before = first["weights"]
