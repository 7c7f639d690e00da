"""Cloning of a skill's policy from demonstrations, optionally with rounds of DAgger.

In a round the current policy acts in training environments while the demonstrator labels the states
with its actions; these episodes are added to the demonstrations (Ross, Gordon and Bagnell, "A
reduction of imitation learning and structured prediction to no-regret online learning", AISTATS
2011).
"""

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from skills.demos.preset import SCALES, SWITCHES, ClonePreset
from skills.demos.recording import Actors, RecorderFactory, RecordJob
from skills.demos.selecting import select
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.policies.deployed import Deployment
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.imitation.cloner import Cloner
from tpsrl.rl.imitation.dataset import Demonstration
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import curves, metrics, warm_start
from tpsrl.rl.run.validation import MakePool, Validation
from tpsrl.runtime import pool, progress

_JOB = 12  # episodes per job of a worker


@dataclasses.dataclass(frozen=True, slots=True)
class CloneSchedule:
    """Length of a cloning, its rounds of DAgger and its validations.

    The `frames` to train on are divided into `rounds` + 1 parts. Before each part except the first,
    `round_episodes` episodes are recorded in which the policy acts. For a policy that has already
    learned the skill (`knows`) there are `rounds` parts, with a round before the first one too.
    `validations` of `validation_episodes` episodes each are spread evenly. `takeover` and `relabel`
    are those of `skills.demos.recording.Actors`.
    """

    frames: int
    rounds: int = 0
    knows: bool = False
    round_episodes: int = 200
    takeover: float = 1.0
    relabel: bool = False
    validations: int = 4
    validation_episodes: int = 100

    def due(self, part: int, parts: int) -> int:
        """Returns the number of rounds that must precede part `part` of `parts`."""
        if self.knows:
            return min(part * self.rounds // parts + 1, self.rounds)
        return part * (self.rounds + 1) // parts


class Cloning:
    """Cloning of one policy.

    Args:
        options: of the environments of DAgger's rounds, including the policy's inputs
        preset: settings of network and optimisation
        schedule: frames, rounds and validations
        out: folder for `checkpoints/`, metrics.jsonl and curve.png
        validation: makes the environments of a validation; None: no validations
        processes: number of workers of DAgger's rounds
        seed: of weights, order of episodes and rounds
        say: is called with lines of progress
        init: checkpoint that initialises the policy's weights (`tpsrl.rl.run.warm_start`)

    Raises:
        UserError: `init` does not fit the policy.
    """

    def __init__(
        self,
        options: EnvOptions,
        preset: ClonePreset,
        schedule: CloneSchedule,
        out: Path,
        validation: MakePool | None,
        processes: int,
        seed: int,
        say: Callable[[str], None],
        init: checkpoints.Checkpoint | None = None,
    ) -> None:
        self.options, self.schedule, self.out = options, schedule, out
        self._processes, self._seed = processes, seed
        self._validation: Validation | None = None
        if validation is not None:
            self._validation = Validation(validation, schedule.validation_episodes, say)
        self._say = say
        self._deploy = Deployment(options.inputs, delay=False).to_json()
        env = TrainingVecEnvFactory(options, seed)([0])
        spec = dataclasses.replace(env.spec, initial_mean=(), initial_std=())
        env.close()
        torch.manual_seed(seed)
        network = preset.policy if init is None else warm_start.network(preset.policy, init)
        self.policy = ActorCritic(spec, network)
        if init is not None:
            warm_start.take_over(self.policy, init)
        self.cloner = Cloner(self.policy, preset.cloning, SWITCHES, seed, SCALES)
        self.frames, self.best = 0, dict[str, Any]()

    @property
    def latest(self) -> Path:
        """Path of the checkpoint of the latest part."""
        return self.out / checkpoints.FOLDER / checkpoints.LATEST

    def run(self, episodes: list[Demonstration], made: Json) -> Json:
        """Fits the policy and returns the result of the best validation.

        Args:
            episodes: initial demonstrations
            made: provenance of the demonstrations, saved in checkpoints

        Returns:
            The best validation with its "steps", {} without validations.

        Raises:
            RunError: the loss is not finite, or a worker failed.
            UserError: the folder cannot be written.
        """
        schedule = self.schedule
        episodes = list(episodes)
        parts = max(schedule.rounds + (not schedule.knows), schedule.validations)
        log, curve = metrics.MetricsLog(self.out), curves.Curve(self.out, [])
        begun, round_number = time.perf_counter(), 0
        if schedule.knows:
            self._save(checkpoints.LATEST, made, {})  # acts in the first round
        with contextlib.closing(log):
            for part in range(parts):
                row: Json = {"update": part + 1}
                due = schedule.due(part, parts)
                if due > round_number:
                    round_number = due
                    row["round"] = self._round(round_number, episodes)
                share = part / parts, (part + 1) / parts
                learned = self._learn(episodes, schedule.frames // parts, *share)
                self.frames += int(learned["frames"])
                row |= {"steps": self.frames, "episodes": len(episodes), "learner": learned}
                row |= {"success": None, "return": None}
                self._save(checkpoints.LATEST, made, {})
                if self._validation is not None:
                    row |= self._validate(made)
                row["seconds"] = round(time.perf_counter() - begun, 1)
                log.write(row)
                curve.add(row, now=True)
                self._say(_line(row))
        if not self.best:
            self._save(checkpoints.BEST, made, {})
        self._save(checkpoints.LATEST, made, {}, ended=True)
        return self.best

    def _learn(
        self, episodes: list[Demonstration], frames: int, done: float, until: float
    ) -> dict[str, float]:
        """Trains on `frames` frames with lines of progress; see `Cloner.learn`."""
        lines, before = progress.Lines(self._say), self.frames

        def tell(gone: int) -> None:
            lines.add(f"learning: {before + gone:,} of {self.schedule.frames:,} frames")

        return self.cloner.learn(episodes, frames, done, until, tell)

    def _round(self, number: int, episodes: list[Demonstration]) -> Json:
        """Records and appends episodes of the current policy; returns the round's log entry."""
        count, schedule = self.schedule.round_episodes, self.schedule
        actors = Actors(self.latest, takeover=schedule.takeover, relabel=schedule.relabel)
        seed = self._seed + 1000 * number
        jobs = [
            RecordJob(tuple(range(first, min(first + _JOB, count))), actors, seed)
            for first in range(0, count, _JOB)
        ]
        inputs = self.options.inputs
        held = inputs.complete()
        found: dict[int, Sequence[Any]] = {}
        factory = RecorderFactory(self.options)
        lines, done = progress.Lines(self._say), 0
        lines.add(f"round {number}: recording {count:,} episodes")
        for index, recordings in pool.run(factory, jobs, self._processes):
            found[index] = sorted(recordings, key=lambda recording: recording.number)
            done += len(jobs[index].numbers)
            lines.add(f"round {number}: {done:,} of {count:,} episodes")
        ended: Counter[str] = Counter()
        frames = 0
        for index in sorted(found):
            ended.update(recording.ended_by for recording in found[index])
            shown = select(found[index], held, inputs)
            frames += sum(map(len, shown))
            episodes += shown
        return {"number": number, "frames": frames, "ended": dict(ended.most_common())}

    def _validate(self, made: Json) -> Json:
        """Validates the policy, saves it if it is the best so far, and returns log entries."""
        assert self._validation is not None
        validated = self._validation.run(self.policy)
        result = validated.to_json()
        if validated.given_up:
            return {"validation_given_up": result}
        quality = result["success"], result["return"]
        if not self.best or quality >= (self.best["success"], self.best["return"]):
            self.best = {"steps": self.frames, **result}
            self._save(checkpoints.BEST, made, result)
        return {"validation": result}

    def _save(self, name: str, made: Json, result: Json, ended: bool = False) -> None:
        tensors, note = checkpoints.policy_part(self.policy)
        about = {"deploy": self._deploy, "steps": self.frames, "cloned": made, "ended": ended}
        path = self.latest.with_name(name)
        checkpoints.save(path, tensors, {**about, **note, "validation": result})


def was_stopped(out: Path) -> bool:
    """Returns whether cloning may write to a folder: it has an unfinished cloning or none.

    Raises:
        UserError: the folder's checkpoint cannot be read.
    """
    folder = out / checkpoints.FOLDER
    latest, logged = folder / checkpoints.LATEST, (out / metrics.METRICS).is_file()
    if not latest.exists():
        return logged or not folder.exists()
    return checkpoints.load(latest, "none", "out").note.get("ended") is False


def _line(row: Json) -> str:
    """Returns the line of progress of a part."""
    text = f"{row['steps']:,} frames: distance {row['learner']['distance']:.3f}"
    if "round" in row:
        ended = ", ".join(f"{name} {count}" for name, count in row["round"]["ended"].items())
        text += f"; round {row['round']['number']}: {ended}"
    if "validation" in row:
        text += f"; validation success {100 * row['validation']['success']:.1f}%"
    return text
