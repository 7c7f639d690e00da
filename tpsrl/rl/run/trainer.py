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

# What comes of entries of a checkpoint that are not what was saved there.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_RANK_FILES = "latest.rank{}.{}.safetensors"  # number of the rank, updates


@dataclasses.dataclass(frozen=True, slots=True)
class TrainSchedule:
    """When what is done besides learning.

    `validate_every` is in steps of experience, `checkpoint_minutes` in minutes of training.
    """

    validate_every: int = 200_000
    validation_episodes: int = 50
    checkpoint_minutes: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class TrainTask:
    """What a policy is trained in.

    `factory` makes the environments to learn in; `validation` those of a validation, None for no
    validation; `deploy` is what a checkpoint says besides of how
    to act by it.
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
        task: in what
        watcher: is told of its course
        processes: workers of the environments; 0: they are in this process
        seed: of weights, actions and the order of mini-batches
        device: of the network
        init: what the policy's weights are taken from; not needed for what is resumed
        imitation: loss on demonstrations, see `tpsrl.rl.learning.ppo.PPO`
        teacher: who says what to do in each state, see `tpsrl.rl.learning.teaching`
        logger: where numbers go besides metrics.jsonl, see `tpsrl.rl.run.loggers.parse`
        group: who trains the policy together. Steps and episodes are those of all ranks; rank 0
            alone validates, logs, draws and tells the watcher.

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
        self._pending: Json = {}  # the record of an update whose validation a signal has stopped
        self._asked = ""  # the signal that came to any rank, on all of them at the same update
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
        self.rollout = self._rollouts[0]  # the last that was collected

    @property
    def latest(self) -> Path:
        """The file to resume from."""
        return self.out / checkpoints.FOLDER / checkpoints.LATEST

    @property
    def acting(self) -> ActorCritic:
        """The policy that is validated and kept: of averaged weights, if they are averaged."""
        return self.policy if self._average is None else self._average.policy

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on exactly where a checkpoint was saved.

        Raises:
            UserError: the checkpoint is of another kind of training (names what differs), or of an
                earlier format.
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
            told = f"{type(error).__name__}: {error}"
            raise UserError(f"resume: {checkpoint.path} is damaged ({told})") from None

    def _restore(self, checkpoint: Checkpoint) -> None:
        """All that the policy's weights are not.

        Raises:
            UserError, or one of `_DAMAGE`: an entry is not what was saved.
        """
        if self._average is not None:
            self._average.restore(checkpoint)
        if self._practice is not None:
            self._practice.restore(checkpoint)
            self.collector.pool.weigh(self._practice.weights)
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
        """Until the last step; "" then, or the name of the signal that asked to stop before.

        On SIGTERM or SIGINT it saves after the present rollout, or at once in a validation, which
        who resumes then begins with, and returns; on SIGUSR1 it saves and goes on.

        Raises:
            RunError: an environment or worker failed, or a loss is not finite. The latest
                checkpoint is from before.
        """
        records = self._records()
        self._tell(
            f"collecting the first {self._whole:,} steps; code that is not compiled yet is "
            "compiled now, once"
        )
        self._saved = time.monotonic()
        with contextlib.closing(records), self._signals:
            try:
                return self._to_the_end(records)
            except OthersLostError:
                self._signals.end()  # they may have been told so before
                raise

    def _to_the_end(self, records: Records | NoRecords) -> str:
        """See `train`."""
        wanted = False
        while self.steps < self.settings.steps or self._pending:
            last = self.steps + self._whole >= self.settings.steps
            before = self.steps
            row, self._pending = self._pending or self._update(not (last or wanted)), {}
            if self._validation is not None and (before == self.steps or self._due(before)):
                found = self._validate(self._validation)
                if not found and not self.collector.running:
                    self._pending = row  # is validated, and recorded, by who goes on
                    self.save()
                    self._is_time_to_save()  # learns of all ranks' signals
                    return self._asked or "SIGTERM"
                row |= found
            last = self.steps >= self.settings.steps
            records.add(row, now="validation" in row or last or bool(self._signals.noted))
            wanted = self._is_time_to_save() or last
            if not wanted or self.collector.running:
                continue  # Of one that runs ahead nothing can be saved before it has paused.
            self.save()
            self._saved, wanted = time.monotonic(), False
            asked, self._asked = self._asked, ""
            if asked == "SIGUSR1":
                self._tell(f"saved {self.latest}")
            elif asked:
                return asked
        return ""

    @property
    def _whole(self) -> int:
        """Steps of a rollout of all ranks, if none is cut short."""
        return self.rollout.size * self.group.size

    def _tell(self, text: str) -> None:
        """Says something that all ranks know, once."""
        if self.group.rank == 0:
            self._watcher.say(text)

    def _records(self) -> Records | NoRecords:
        if self.group.rank > 0:
            return NoRecords()
        told = config.flat(self.settings)
        return Records(self.out, self._watcher, self.updates, self.steps, self._logger, told)

    def _is_to_stop(self) -> bool:
        return self._signals.is_to_stop

    def _is_time_to_save(self) -> bool:
        """Whether rank 0 has waited long enough, or any rank was asked to."""
        overdue = time.monotonic() - self._saved > 60.0 * self.schedule.checkpoint_minutes
        told = self.group.gather((self._signals.take(), overdue))
        self._asked = next((name for name, _ in told if name), self._asked)
        return bool(told[0][1] or self._asked)

    def close(self) -> None:
        """Ends the environments; safe to call twice."""
        self.collector.close()

    def save(self) -> None:
        """Writes the latest checkpoint, and the best one if no validation chose one.

        What a rank has for itself, environments and steps in flight, is in a file of its own; that
        of rank 0 is in the checkpoint, which is written when all others are there.

        Raises:
            UserError: it cannot be written.
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
        """The checkpoint, with what rank 0 has for itself."""
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
        """What this rank has for itself; None where it was not there when that was saved."""
        path = self._rank_file(checkpoint.get("updates", Count), self.group.rank)
        if self.group.rank >= checkpoint.note.get("ranks", 1) or not path.is_file():
            self._watcher.say("not among the ranks that saved: its episodes begin anew")
            return None
        own = checkpoints.load(path, field="resume")
        self.ppo.shuffle = own.part("shuffle")["state"]
        return own

    def _about(self) -> Json:
        begun = {"init": self._origin} if self._origin else {}
        return {"deploy": self._deploy, "steps": self.steps, **begun}

    def _save_policy(self, result: Json) -> None:
        """The best checkpoint: no more than is needed to act by it."""
        tensors, note = checkpoints.policy_part(self.acting)
        path = self.latest.with_name(checkpoints.BEST)
        checkpoints.save(path, tensors, {**self._about(), **note, "validation": result})

    def _update(self, ahead: bool) -> Json:
        """One rollout and what is learned from it; its record.

        `ahead` is whether the collector may go on while it is learned from.
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
        told = self.group.gather(Collected.of(collection))
        fresh = sum(rank.fresh for rank in told)
        episodes = [episode for rank in told for episode in rank.episodes]
        self.updates += 1
        self.steps += fresh
        self.seconds += total
        self.episodes += len(episodes)
        self._recent.add(episodes)
        if self._average is not None:
            self._average.add(self.policy, fresh)
        if self._practice is not None:
            self._practice.add(episodes)
            self.collector.pool.weigh(self._practice.weights)
        return {
            "update": self.updates,
            "steps": self.steps,
            "episodes": self.episodes,
            **self._recent.means(),
            **ends(episodes),
            "lost": [lost for rank in told for lost in rank.lost],
            "learner": learned,
            **({} if self._practice is None else _practised(self._practice)),
            "seconds": round(self.seconds, 3),
            "samples_per_s": round(fresh / total, 1),
            "time": spent(collection, learning, total),
            "waits": {cause: round(s, 4) for cause, s in collection.waits.items()},
        }

    def _actor(self, progress: float) -> ActorCritic | MixedActor:
        """Who acts when so much of the training is done."""
        until = self.settings.teacher_acts
        if self._teacher is None or progress >= until:
            return self.policy
        return MixedActor(self.policy, self._teacher, 1.0 - progress / until)

    def _due(self, before: int) -> bool:
        """Whether the update from so many steps has come by a validation, or is the last."""
        every = self.schedule.validate_every
        return self.steps // every > before // every or self.steps >= self.settings.steps

    def _validate(self, validation: Validation) -> Json:
        """Validates, and keeps the policy if it is the best so far; what the record has of it.

        Nothing if a signal has stopped it.
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
        self._tell(
            f"{self.steps:,} steps: validation success {100 * result['success']:.1f}% "
            f"({result['episodes']} episodes, {time.perf_counter() - begun:.0f} s), "
            f"best {100 * self.best['success']:.1f}%"
        )
        return {"validation": result}


def _practised(practice: Practice) -> Json:
    """What a record has of the success rates of starts."""
    parts = {name: round(rate, 4) for name, rate in practice.by_part().items()}
    return {"mastered": round(practice.mastered, 4), "mastered_of": parts}


def check_resumable(checkpoint: Checkpoint, settings: TrainSettings) -> None:
    """Refuses a checkpoint that a training of these settings cannot go on from.

    Raises:
        UserError: it has another number of environments, or an earlier version wrote it.
    """
    checkpoint.check_resumable()
    saved = checkpoint.get("num_envs", int)
    if saved != settings.num_envs:
        raise UserError(f"preset.num_envs: {settings.num_envs}, but the checkpoint has {saved}")


def load_latest(folder: Path) -> Checkpoint:
    """The checkpoint to resume from in a training's folder.

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
    """Parts of a checkpoint, each tensors and a note, as `checkpoint.save` takes them."""
    tensors = {
        n: t for name, (t_of, _) in parts.items() for n, t in checkpoints.named(name, t_of).items()
    }
    return tensors, {name: note for name, (_, note) in parts.items()}
