"""Training of a skill, as called by `tpsrl train` and `tpsrl distill`."""

import contextlib
import dataclasses
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.collection.settings import DEVICE
from tpsrl.rl.policy.settings import TIMM
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import files, locks
from tpsrl.runtime.processes import end_with_starter
from tpsrl.training import checks, cloning, demos, ranks
from tpsrl.training.fine_tuning import widened
from tpsrl.training.loading import CONFIG, LATEST
from tpsrl.training.settings import TrainingSettings
from tpsrl.training.task import make

if TYPE_CHECKING:
    from skills.core.choices import SensorChoice
    from tpsrl.rl.distributed.group import Group
    from tpsrl.rl.run.checkpoint import Checkpoint

_RUNS, _STATES = "runs", 12  # folder of recorded runs, and number of states kept of each
_CLONE = "clone"  # folder of the policy cloned from them


def train(settings: TrainingSettings) -> int:
    """Runs a training; returns 0 when all steps are done, 128 + signal number when stopped."""
    from tpsrl.rl.run import sizes

    settings = _with_runs(checks.checked(settings))
    if settings.ranks > 1 and not ranks.in_job():
        with locks.hold(Path(str(settings.out))):  # one error here instead of one from each rank
            sizes.check_ranks(settings.ranks)
            _beginning(settings)
            ranks.device_of(settings.device)
        return ranks.begin(settings)
    end_with_starter(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(ranks.joined(ranks.device_of(settings.device)))
        if group.rank == 0:
            stack.enter_context(locks.hold(Path(str(settings.out))))
        code = _train(settings, group)
    if group.size > 1:
        ranks.end(code)
    return code


def _with_runs(settings: TrainingSettings) -> TrainingSettings:
    """Records runs of the scripted skill, if `preset.along` is set, and uses them.

    Start states lie along the runs unless others are given, and the initial policy is cloned from
    them with `preset.clone` unless one is given.

    Raises:
        UserError: the skill has no scripted version, or this process is one of several ranks, which
            would all record.
    """
    count, resumed = settings.preset.along, settings.resume is not None
    clones = settings.preset.clone > 0 and settings.init is None
    if not count or resumed or (settings.start_states is not None and not clones):
        return settings
    if ranks.in_job():
        raise UserError(
            "preset.along: record runs first, by tpsrl demos SKILL agent=scripted states=12, and "
            "name them by start_states=own:0.5,along:DIR:0.5"
        )
    from skills import registry

    if clones and settings.preset.policy.encoder != "state":
        raise UserError(
            "preset.clone: runs are recorded without images, so the policy must have none; "
            "nearest: 0"
        )
    if registry.get(settings.skill).scripted is None:
        raise UserError(
            f"preset.along: {settings.skill} has no scripted version to record; nearest: 0"
        )
    out = Path(str(settings.out))
    _beginning(settings)
    if settings.preset.collector == DEVICE and settings.start_states is None:
        raise UserError(
            f"preset.along: collector={DEVICE} cannot begin in recorded states; nearest: 0"
        )
    recorded = demos.DemosSettings(
        skill=settings.skill,
        num=count,
        agent="scripted",
        states=_STATES,
        camera=False,
        disturbed=0.3,
        num_objects=settings.num_objects,
        num_episodes=settings.num_episodes,
        engine=settings.engine,
        habitat=settings.habitat,
        skill_modules=settings.skill_modules,
        seed=settings.seed,
        processes=settings.processes or None,
        out=str(out / _RUNS),
    )
    demos.record(recorded)
    if clones:
        settings = dataclasses.replace(settings, init=str(_cloned(settings, out)))
    if settings.start_states is not None:
        return settings
    own = "own:0.25,rearranged:0.25"
    if registry.get(settings.skill).start_states().num_objects == 0:
        own = "own:0.5"  # Rearranged apartments have objects.
    starts = f"{own},along:{out / _RUNS}:0.5"
    return dataclasses.replace(settings, start_states=checks.whole_paths(starts, "preset.along"))


def _cloned(settings: TrainingSettings, out: Path) -> Path:
    """Clones the recorded runs; returns the checkpoint of the policy."""
    from tpsrl.rl.run import warm_start

    policy = dataclasses.replace(settings.preset.policy, critic=False)
    made = cloning.clone(
        cloning.CloneSettings(
            skill=settings.skill,
            demos=str(out / _RUNS),
            preset=dataclasses.replace(cloning.CloneSettings().preset, policy=policy),
            sensors=settings.sensors or cast("SensorChoice", settings.preset.sensors or "full"),
            frames=settings.preset.clone,
            validation_episodes=0,
            num_objects=settings.num_objects,
            num_episodes=settings.num_episodes,
            engine=settings.engine,
            habitat=settings.habitat,
            skill_modules=settings.skill_modules,
            encoder_modules=settings.encoder_modules,
            seed=settings.seed,
            processes=settings.processes or None,
            threads=settings.threads,
            out=str(out / _CLONE),
        )
    )
    return warm_start.find(str(made))


def _train(settings: TrainingSettings, group: "Group") -> int:
    """Runs the part of one rank."""
    from rich.console import Console

    console, out = Console(), Path(str(settings.out))
    if group.rank == 0:
        console.print(_heading(settings), highlight=False, markup=False, soft_wrap=True)
    from tpsrl.rl.run.trainer import Trainer, TrainSchedule
    from tpsrl.rl.run.watch import Watch
    from tpsrl.sim import datasets

    checkpoint = _beginning(settings)
    init = _weights(settings) if checkpoint is None else None
    processes = set_up(settings.preset, settings.processes, settings.threads, group.local_size)
    settings = dataclasses.replace(settings, resume=None, processes=processes)
    schedule = TrainSchedule(
        settings.validate_every, settings.validation_episodes, settings.checkpoint_minutes
    )
    shown = Watch(settings.skill, settings.preset.steps, console)
    with shown if group.rank == 0 else ranks.RankWatch(group.rank) as watch:
        with datasets.telling(watch.prepare):
            task, imitation, teacher = ranks.in_turn(group, lambda: make(settings, group.rank))
        if group.rank == 0:
            watch.say(_start(settings.preset.num_envs, processes, group.size))
        trainer = Trainer(
            settings.preset,
            schedule,
            out,
            task,
            watch,
            processes,
            settings.seed,
            ranks.device_of(settings.device),
            init=init,
            imitation=imitation,
            logger=settings.logger,
            group=group,
            teacher=teacher,
        )
        try:
            if checkpoint is not None:
                checks.check_banks(checkpoint.get("deploy", dict), task.deploy)
                trainer.resume(checkpoint)
            if group.rank == 0:
                named = "".join(f"# {job}\n" for job in ranks.jobs())
                files.write_text(out / CONFIG, named + config.to_yaml(settings))
            stopped = trainer.train()
        except UserError:
            if group.rank == 0 and checkpoint is None and not trainer.updates:
                _forget(out)
            raise
        finally:
            trainer.close()
        if group.rank == 0:
            watch.say(f"wrote {trainer.latest.parent}")
    if not stopped:
        if group.rank == 0:
            print(f"evaluate it with `tpsrl eval {settings.skill} agent={out}`")
        return 0
    if group.rank == 0:
        print(f"stopped; resume with `tpsrl train resume={out}`")
    return 128 + signal.Signals[stopped]


def _beginning(settings: TrainingSettings) -> "Checkpoint | None":
    """Returns the checkpoint to resume, or None; refuses a folder that cannot be used for this."""
    from tpsrl.rl.run import metrics
    from tpsrl.rl.run.checkpoint import BEST, FOLDER
    from tpsrl.rl.run.curves import CURVE
    from tpsrl.rl.run.trainer import check_resumable, load_latest

    out = Path(str(settings.out))
    if settings.resume is None and holds_training(out):
        raise UserError(
            f"out: {out} contains a training; resume it with resume={out}, or choose another out"
        )
    files.check_replaceable(out, (CONFIG, LATEST, f"{FOLDER}/{BEST}", metrics.METRICS, CURVE))
    if settings.resume is None:
        return None
    checkpoint = load_latest(out)
    check_resumable(checkpoint, settings.preset)
    if settings.delay != checkpoint.get("deploy", dict).get("delay", False):
        given, begun = str(settings.delay).lower(), str(not settings.delay).lower()
        raise UserError(f"delay: {given}, but the training began with {begun}; leave it out")
    if (out / metrics.METRICS).is_file():
        for _ in metrics.read(out):  # raises an error for an invalid file
            pass
    return checkpoint


def _forget(out: Path) -> None:
    """Removes the files of a training that was refused before its first update."""
    from tpsrl.rl.run.curves import CURVE
    from tpsrl.rl.run.loggers import TENSORBOARD
    from tpsrl.rl.run.metrics import METRICS

    for name in (CONFIG, METRICS, CURVE):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / TENSORBOARD, ignore_errors=True)


def holds_training(out: Path) -> bool:
    """Returns whether a folder has checkpoints that a new training would overwrite.

    A training that was killed before its first checkpoint has at most the best policy of a
    validation, and starts from the beginning.
    """
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run.metrics import METRICS

    folder = out / checkpoints.FOLDER
    killed = (out / METRICS).is_file() and not (folder / checkpoints.LATEST).exists()
    return folder.exists() and not killed


def _weights(settings: TrainingSettings) -> "Checkpoint | None":
    """Returns the checkpoint with the initial weights of a new training, or None."""
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    if settings.init is not None:
        return widened(checkpoints.load(settings.init, field="init"), settings)
    if settings.encoder_weights is not None:
        path = Path(settings.encoder_weights)
        return warm_start.EncoderFile(path, {}, {}, "encoder_weights")
    if settings.encoder is None or settings.encoder.startswith(TIMM):
        return None
    whole = checkpoints.load(settings.encoder, field="encoder")
    return warm_start.EncoderOnly(whole.path, whole.tensors, whole.note, whole.field)


def _start(num_envs: int, processes: int, count: int) -> str:
    """Describes the environments and workers that are started."""
    where = f"in {processes} workers" if processes > 1 else "in one worker"
    where = where if processes else "in this process"
    each = f" on each of {count} ranks" if count > 1 else ""
    return f"starting {num_envs} environments {where}{each}"


def _heading(settings: TrainingSettings) -> str:
    """Describes the training; printed before the imports, which take seconds."""
    preset = settings.preset
    verb = "resuming" if settings.resume else "training"
    return f"{verb} {settings.skill} for {preset.steps:,} steps, preset {preset.name}; loading"


def set_up(preset: TrainSettings, processes: int | None, threads: int, ranks: int = 1) -> int:
    """Prepares this process for learning and returns its number of environment workers.

    The cores are divided among `ranks` processes on this machine.
    """
    import torch

    from tpsrl.rl.collection.settings import IN_PROCESS
    from tpsrl.rl.collection.threads import learner_threads
    from tpsrl.runtime import machine

    cores = max(machine.cores() // ranks, 1)
    torch.set_num_threads(threads or learner_threads(cores, preset.collector))
    machine.keep_memory()
    if preset.collector in IN_PROCESS:
        return 0
    return min(cores if processes is None else processes, preset.num_envs)
