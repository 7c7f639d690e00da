"""The training loop: collect, learn, log, validate, save, resume."""

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.collection.preemption import Pace
from tpsrl.rl.distributed.group import Alone, Group, OthersLostError
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.vec_env import Json, VecEnvFactory
from tpsrl.rl.learning.ppo import Imitation
from tpsrl.rl.learning.teaching import MixedActor, Teacher
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import averaging, loggers, metrics, warm_start
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import practice as practising
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.averaging import WeightAverage
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.rl.run.practice import Practice
from tpsrl.rl.run.records import NoRecords, Records, Watcher
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.signals import SignalsNoted
from tpsrl.rl.run.tally import Collected, RecentEpisodes, ends, spent
from tpsrl.rl.run.validation import MakePool, Stopped, Validation
from tpsrl.runtime import machine
from tpsrl.runtime.records import Count

# Exceptions that are caused by damaged entries of a checkpoint.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_RANK_FILES = "latest.rank{}.{}.safetensors"  # number of the rank, updates


@dataclasses.dataclass(frozen=True, slots=True)
class TrainSchedule:
    """Intervals of validation and of checkpoints.

    `validate_every` is in steps of experience, `checkpoint_minutes` in minutes of training.
    """

    validate_every: int = 200_000
    validation_episodes: int = 50
    checkpoint_minutes: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class TrainTask:
    """Environments of a training.

    `factory` makes the environments of the training; `validation` makes those of a validation, None
    for no validation. `deploy` are the settings for acting that checkpoints store.
    """

    factory: VecEnvFactory
    validation: MakePool | None = None
    deploy: Json = dataclasses.field(default_factory=dict)


class Trainer:
    """Trains one policy in environments of one kind.

    Args:
        settings: rollouts, network and learner
        schedule: validation and checkpoints
        out: folder for `checkpoints/`, metrics.jsonl and curve.png
        task: environments of training and validation
        watcher: shows the progress
        processes: number of worker processes; 0: the environments are in this process
        seed: of weights, actions and the order of mini-batches
        device: of the network
        init: checkpoint from which the policy's weights are taken; not needed to resume
        imitation: loss on demonstrations, see `tpsrl.rl.learning.ppo.PPO`
        logger: loggers of the numbers besides metrics.jsonl, see `tpsrl.rl.run.loggers.parse`
        group: ranks that train the policy together. Steps and episodes are counted over all ranks;
            only rank 0 validates, logs, draws and calls the watcher.
        teacher: labels states with actions, see `tpsrl.rl.learning.teaching`

    Raises:
        UserError: a setting is out of range, `init` does not fit, or the folder cannot be written.
        RunError: a worker could not be launched.
    """

    def __init__(
        self,
        settings: TrainSettings,
        schedule: TrainSchedule,
        out: Path,
        task: TrainTask,
        watcher: Watcher,
        processes: int = 0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        init: Checkpoint | None = None,
        imitation: Imitation | None = None,
        logger: str = loggers.DEFAULT,
        group: Group | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.settings, self.schedule, self.out = settings, schedule, out
        self.group: Group = group or Alone()
        self.steps = self.updates = self.episodes = 0
        self.seconds = 0.0
        self.best: Json = {}
        self._recent = RecentEpisodes()
        self._deploy, self._watcher = task.deploy, watcher
        self._saved = time.monotonic()
        self._validation: Validation | None = None
        if task.validation is not None:
            count = schedule.validation_episodes
            self._validation = Validation(task.validation, count, watcher.say)
        self._logger = logger
        self._signals = SignalsNoted()
        self._pending: Json = {}  # record of an update whose validation a signal has stopped
        self._asked = ""  # signal to any rank, set on all ranks at the same update
        tolerance = FaultTolerance(hang_s=settings.hang_s, max_failures=settings.max_failures)
        self._origin = {} if init is None else warm_start.origin(init)
        made = assemble(
            settings,
            task.factory,
            processes,
            seed,
            device,
            tolerance,
            watcher.say,
            init,
            imitation,
            self.group,
            teacher=teacher,
        )
        self._teacher = teacher
        self.collector, self._rollouts = made.collector, made.rollouts
        self.policy, self.ppo, self._preemption = made.policy, made.ppo, made.preemption
        self._average: WeightAverage | None = None
        if settings.average_steps:
            self._average = WeightAverage(self.policy, settings.average_steps)
        self._practice: Practice | None = None
        if settings.practice == "success" and self.collector.spec.start_groups:
            self._practice = Practice(self.collector.spec.start_parts, settings.practice_floor)
        self.rollout = self._rollouts[0]  # the last one collected

    @property
    def latest(self) -> Path:
        """Path of the checkpoint to resume from."""
        return self.out / checkpoints.FOLDER / checkpoints.LATEST

    @property
    def acting(self) -> ActorCritic:
        """The policy that is validated and saved as the best: with averaged weights if enabled."""
        return self.policy if self._average is None else self._average.policy

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continues exactly from a checkpoint.

        Raises:
            UserError: the checkpoint is of another kind of training (names the difference), is
                damaged, or is of an earlier format.
        """
        check_resumable(checkpoint, self.settings)
        checkpoints.load_weights(self.policy, checkpoint)
        try:
            self._restore(checkpoint)
        except UserError as error:
            if str(error).startswith("resume: "):
                raise
            raise UserError(f"resume: {checkpoint.path}: {error}") from None
        except _DAMAGE as error:
            if machine.is_out_of_memory(error):
                raise
            cause = f"{type(error).__name__}: {error}"
            raise UserError(f"resume: {checkpoint.path} is damaged ({cause})") from None

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Restores everything but the policy's weights.

        Raises:
            UserError, or one of `_DAMAGE`: an entry is damaged.
        """
        if self._average is not None:
            self._average.restore(checkpoint)
        if self._practice is not None:
            self._practice.restore(checkpoint)
            self.collector.weigh(self._practice.weights)
        self.ppo.load_state_dict(checkpoint.part("ppo"), checkpoint.get("ppo", dict))
        own = checkpoint if self.group.rank == 0 else self._of_rank(checkpoint)
        if own is not None:
            self.rollout.load_state_dict(own.part("rollout"), own.get("rollout", dict))
            arrays = {name: t.numpy() for name, t in own.part("collector").items()}
            self.collector.restore(arrays, own.get("collector", dict))
        self.steps = checkpoint.get("steps", Count)
        self.updates = checkpoint.get("updates", Count)
        self.episodes = checkpoint.get("episodes", Count)
        self.seconds = checkpoint.get("seconds", float)
        self.best = checkpoint.get("best", dict)
        if self.best:
            best = {"update": self.updates, "steps": self.steps, "validation": self.best}
            metrics.check(best, f"resume: {checkpoint.path}: best")
        self._origin = checkpoint.note.get("init", {})
        self._recent.restore(checkpoint.get("window", list))
        self._pending = checkpoint.note.get("pending", {})
        if self._pending:
            metrics.check(self._pending, f"resume: {checkpoint.path}: pending")
            float(self._pending["samples_per_s"])
        if self._validation is not None:
            lost = checkpoint.note.get("validation_lost", [])
            self._validation.lost = {int(start): str(cause) for start, cause in lost}

    def train(self) -> str:
        """Trains until the last step, or until a signal asks to stop.

        On SIGTERM or SIGINT the trainer saves and returns: after the current rollout, or at once
        during a validation, with which a resumed training then begins. On SIGUSR1 it saves and
        continues.

        Returns:
            "" after the last step, otherwise the name of the signal

        Raises:
            RunError: an environment or worker failed, or a loss is not finite. The latest
                checkpoint is from before.
        """
        records = self._records()
        self._tell(
            f"collecting the first {self._whole:,} steps; functions that are not in the cache are "
            "compiled once"
        )
        self._saved = time.monotonic()
        with contextlib.closing(records), self._signals:
            try:
                return self._to_the_end(records)
            except OthersLostError:
                self._signals.end()  # the same signal may have ended the others
                raise

    def _to_the_end(self, records: Records | NoRecords) -> str:
        """Runs the loop of `train`."""
        wanted = False
        while self.steps < self.settings.steps or self._pending:
            last = self.steps + self._whole >= self.settings.steps
            before = self.steps
            row, self._pending = self._pending or self._update(not (last or wanted)), {}
            if self._validation is not None and (before == self.steps or self._due(before)):
                found = self._validate(self._validation)
                if not found and not self.collector.running:
                    self._pending = row  # the resumed training validates and records it
                    self.save()
                    self._is_time_to_save()  # exchanges the signals of all ranks
                    return self._asked or "SIGTERM"
                row |= found
            last = self.steps >= self.settings.steps
            records.add(row, now="validation" in row or last or bool(self._signals.noted))
            wanted = self._is_time_to_save() or last
            if not wanted or self.collector.running:
                continue  # A collector that runs ahead must pause before it can be saved.
            self.save()
            self._saved, wanted = time.monotonic(), False
            received, self._asked = self._asked, ""
            if received == "SIGUSR1":
                self._tell(f"saved {self.latest}")
            elif received:
                return received
        return ""

    @property
    def _whole(self) -> int:
        """Steps of a whole rollout over all ranks."""
        return self.rollout.size * self.group.size

    def _tell(self, text: str) -> None:
        """Shows a message once, by rank 0; every rank calls it."""
        if self.group.rank == 0:
            self._watcher.say(text)

    def _records(self) -> Records | NoRecords:
        if self.group.rank > 0:
            return NoRecords()
        settings = config.flat(self.settings)
        return Records(self.out, self._watcher, self.updates, self.steps, self._logger, settings)

    def _is_to_stop(self) -> bool:
        return self._signals.is_to_stop

    def _is_time_to_save(self) -> bool:
        """Returns whether a checkpoint of rank 0 is due, or any rank received a signal."""
        overdue = time.monotonic() - self._saved > 60.0 * self.schedule.checkpoint_minutes
        gathered = self.group.gather((self._signals.take(), overdue))
        self._asked = next((name for name, _ in gathered if name), self._asked)
        return bool(gathered[0][1] or self._asked)

    def close(self) -> None:
        """Ends the environments; safe to call twice."""
        self.collector.close()

    def save(self) -> None:
        """Writes the latest checkpoint, and also the best one until a validation has chosen one.

        The state of each rank, its environments and steps in flight, is in a separate file. That of
        rank 0 is in the checkpoint, which is written after all other files.

        Raises:
            UserError: a file cannot be written.
        """
        own: dict[str, tuple[Mapping[str, Any], Json]] = {
            "collector": self.collector.snapshot(),
            "rollout": self.rollout.state_dict(),
        }
        if self.group.rank > 0:
            tensors, notes = _named(own | {"shuffle": ({"state": self.ppo.shuffle}, {})})
            checkpoints.save(self._rank_file(self.updates, self.group.rank), tensors, notes)
        self.group.gather(None)
        if self.group.rank == 0:
            self._save_whole(own)
        self.group.gather(None)

    def _save_whole(self, own: dict[str, tuple[Mapping[str, Any], Json]]) -> None:
        """Writes the checkpoint, including the state of rank 0."""
        policy, note = checkpoints.policy_part(self.policy)
        parts = {"ppo": self.ppo.state_dict(), **own}
        if self._average is not None:
            parts[averaging.PART] = self._average.state_dict()
        if self._practice is not None:
            parts[practising.PART] = (self._practice.state_dict(), {})
        tensors, notes = _named(parts)
        tensors |= policy
        state = {
            "ranks": self.group.size,
            "num_envs": self.settings.num_envs,
            "updates": self.updates,
            "episodes": self.episodes,
            "seconds": self.seconds,
            "window": self._recent.state(),
            "best": self.best,
            "pending": self._pending,
        }
        if self._validation is not None:
            state["validation_lost"] = sorted(self._validation.lost.items())
        checkpoints.save(self.latest, tensors, {**self._about(), **note, **notes, **state})
        kept = {self._rank_file(self.updates, rank) for rank in range(1, self.group.size)}
        for path in set(self.latest.parent.glob(_RANK_FILES.format("*", "*"))) - kept:
            path.unlink(missing_ok=True)
        if not self.best:
            self._save_policy({})

    def _rank_file(self, updates: int, rank: int) -> Path:
        return self.latest.with_name(_RANK_FILES.format(rank, updates))

    def _of_rank(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Loads the state of this rank; None if the rank did not exist when it was saved."""
        path = self._rank_file(checkpoint.get("updates", Count), self.group.rank)
        if self.group.rank >= checkpoint.note.get("ranks", 1) or not path.is_file():
            self._watcher.say("no saved state for this rank: its episodes restart")
            return None
        own = checkpoints.load(path, field="resume")
        self.ppo.shuffle = own.part("shuffle")["state"]
        return own

    def _about(self) -> Json:
        begun = {"init": self._origin} if self._origin else {}
        return {"deploy": self._deploy, "steps": self.steps, **begun}

    def _save_policy(self, result: Json) -> None:
        """Writes the best checkpoint, which has only what acting needs."""
        tensors, note = checkpoints.policy_part(self.acting)
        path = self.latest.with_name(checkpoints.BEST)
        checkpoints.save(path, tensors, {**self._about(), **note, "validation": result})

    def _update(self, ahead: bool) -> Json:
        """Collects one rollout and learns from it; returns its record.

        `ahead` is whether the collector may collect the next rollout during learning.
        """
        begun = time.perf_counter()
        progress = self.steps / self.settings.steps
        actor = self._actor(progress)
        collection = self.collector.collect(actor, self._rollouts, self.updates, ahead)
        self.rollout = collection.rollout
        collected = time.perf_counter()
        value_only = self.steps < self.settings.ppo.value_warm_up
        learned = self.ppo.update(self.rollout, progress, value_only, self.updates)
        if self.settings.final_std:
            initial, final = self.settings.policy.initial_std, self.settings.final_std
            self.policy.action_head.bound(initial * (final / initial) ** progress)
        learning = time.perf_counter() - collected
        num_envs, size = self.settings.num_envs, self.rollout.size
        pace = Pace.of(collection.env, collection.took_s, collection.ready_at, num_envs, size)
        self._preemption.plan(pace, learning)
        total = time.perf_counter() - begun
        gathered = self.group.gather(Collected.of(collection))
        fresh = sum(rank.fresh for rank in gathered)
        episodes = [episode for rank in gathered for episode in rank.episodes]
        self.updates += 1
        self.steps += fresh
        self.seconds += total
        self.episodes += len(episodes)
        self._recent.add(episodes)
        if self._average is not None:
            self._average.add(self.policy, fresh)
        if self._practice is not None:
            self._practice.add(episodes)
            self.collector.weigh(self._practice.weights)
        return {
            "update": self.updates,
            "steps": self.steps,
            "episodes": self.episodes,
            **self._recent.means(),
            **ends(episodes),
            "lost": [lost for rank in gathered for lost in rank.lost],
            "learner": learned,
            **({} if self._practice is None else _practised(self._practice)),
            "seconds": round(self.seconds, 3),
            "samples_per_s": round(fresh / total, 1),
            "time": spent(collection, learning, total),
            "waits": {cause: round(s, 4) for cause, s in collection.waits.items()},
        }

    def _actor(self, progress: float) -> ActorCritic | MixedActor:
        """Returns the policy that acts at `progress`, the completed fraction of the training."""
        until = self.settings.teacher_acts
        if self._teacher is None or progress >= until:
            return self.policy
        return MixedActor(self.policy, self._teacher, 1.0 - progress / until)

    def _due(self, before: int) -> bool:
        """Returns whether a validation is due since `before` steps, or the training is over."""
        every = self.schedule.validate_every
        return self.steps // every > before // every or self.steps >= self.settings.steps

    def _validate(self, validation: Validation) -> Json:
        """Validates the policy, and saves it if it is the best so far; returns record entries.

        The result is empty if a signal stopped the validation.
        """
        begun = time.perf_counter()
        found = None
        if self.group.rank == 0:
            with contextlib.suppress(Stopped):
                found = validation.run(self.acting, self._is_to_stop, self._signals.raising)
        shared: tuple[Json, bool] | None = self.group.share(
            found and (found.to_json(), found.given_up)
        )
        if shared is None:
            return {}
        result, given_up = shared
        if given_up:
            return {"validation_given_up": result}
        quality = (result["success"], result["return"])
        if not self.best or quality >= (self.best["success"], self.best["return"]):
            self.best = {"steps": self.steps, **result}
            if self.group.rank == 0:
                self._save_policy(result)
        metrics = result.get("metrics", {})
        spl = f", SPL {metrics['spl']:.2f}" if "spl" in metrics else ""
        self._tell(
            f"{self.steps:,} steps: validation success {100 * result['success']:.1f}%{spl} "
            f"({result['episodes']} episodes, {time.perf_counter() - begun:.0f} s), "
            f"best {100 * self.best['success']:.1f}%"
        )
        return {"validation": result}


def _practised(practice: Practice) -> Json:
    """Returns the entries of a record on success rates of start states."""
    parts = {name: round(rate, 4) for name, rate in practice.by_part().items()}
    return {"mastered": round(practice.mastered, 4), "mastered_of": parts}


def check_resumable(checkpoint: Checkpoint, settings: TrainSettings) -> None:
    """Checks that a training with these settings can resume from a checkpoint.

    Raises:
        UserError: it has another number of environments, or an earlier version wrote it.
    """
    checkpoint.check_resumable()
    saved = checkpoint.get("num_envs", int)
    if saved != settings.num_envs:
        raise UserError(f"preset.num_envs: {settings.num_envs}, but the checkpoint has {saved}")


def load_latest(folder: Path) -> Checkpoint:
    """Loads the checkpoint to resume from in a training's folder.

    Raises:
        UserError: there is none, it is damaged, or an earlier version wrote it.
    """
    path = folder / checkpoints.FOLDER / checkpoints.LATEST
    if not path.is_file():
        raise UserError(f"resume: no checkpoint {path}")
    checkpoint = checkpoints.load(path, field="resume")
    checkpoint.check_resumable()
    return checkpoint


def _named(
    parts: Mapping[str, tuple[Mapping[str, Any], Json]],
) -> tuple[dict[str, torch.Tensor], Json]:
    """Merges parts of a checkpoint, each tensors and a note, as `checkpoint.save` takes them."""
    tensors = {
        n: t for name, (t_of, _) in parts.items() for n, t in checkpoints.named(name, t_of).items()
    }
    return tensors, {name: note for name, (_, note) in parts.items()}
