"""`tpsrl train`: trains a skill."""

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skills.core.choices import CHOICES as SENSORS
from skills.core.choices import SensorChoice
from skills.starts.seeds import VALIDATION_SEED
from skills.tables import task_keys
from tpsrl import config
from tpsrl.commands import Command, by_skill, ranks, training_task
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.rl.policy.settings import ENCODER_NAMES, check_depth
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import files, locks
from tpsrl.runtime.processes import end_with_starter

if TYPE_CHECKING:
    from tpsrl.rl.distributed.group import Group
    from tpsrl.rl.run.checkpoint import Checkpoint

_DESCRIPTION = f"""Trains a skill by PPO in the apartments of the training split and validates it in
those of the validation split. Writes checkpoints/latest.safetensors (to resume),
checkpoints/best.safetensors (to evaluate), metrics.jsonl, curve.png, TensorBoard events and
config.yaml into the output folder.

init=CHECKPOINT starts from the weights of a policy of the same skill; see preset=fine_tune.
encoder=CHECKPOINT takes only the visual encoder, of a policy of any skill; frozen=true freezes it.

preset.policy.encoder=NAME selects the visual encoder:
{", ".join(ENCODER_NAMES)}.

SIGTERM and Ctrl-C save a checkpoint and stop, SIGUSR1 saves one and continues. `tpsrl train
resume=DIR` resumes a training with its own settings; further keys override them."""
_CONFIG, _LATEST = "config.yaml", "checkpoints/latest.safetensors"
_ONCE = ("out", "init", "encoder")  # what a training is told only when it begins
_AUTO = "auto"  # of `resume`
_RUNS, _STATES = "runs", 12  # the folder of recorded runs, and states of each
# By the best of many validations a checkpoint is chosen, so what is reported of it has to be
# measured on other episodes: those of the seeds that evaluations have, 0 unless told otherwise.


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Everything that a training can be told."""

    skill: str = config.option("", "name of the skill")
    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "cpu_small",
        "training preset: rollouts, network, learner; preset.KEY=... overrides an entry",
    )
    depth: int = config.option(
        64, "height and width of the depth image (pixels)", minimum=1, maximum=config.MOST_PIXELS
    )
    sensors: SensorChoice | None = config.option(
        None, "sensors beside the camera (default: habitat; full without a camera)"
    )
    height_map: bool = config.option(
        False, "add an egocentric height map, built from depth and odometry"
    )
    base_movement: bool = config.option(
        True, "allow base motion; false: the base is fixed, as in the paper's ablation"
    )
    task: dict[str, Any] = config.some_of(
        task_keys, "settings of the skill during training, such as task.horizon=200"
    )
    limit_ends: bool = config.option(
        False,
        "treat a timeout as termination; false: truncate the episode and bootstrap the value",
    )
    delay: bool = config.option(False, "act on the previous observation, as in the VER paper")
    start_states: str | None = config.option(
        None,
        "start states: own (default), bank:DIR/SKILL, along:DIR, rearranged, a mixture such as "
        "own:0.5,bank:DIR/SKILL:0.5, or a file",
    )
    starts: str | None = config.option(None, "the same as start_states")
    num_objects: int | None = config.option(
        None,
        "number of objects, 1 to 30 (default: 12, or the skill's own if fewer)",
        minimum=1,
        maximum=30,
    )
    num_episodes: int = config.option(
        63, "number of base episodes to draw start states from", minimum=1, maximum=1008
    )
    engine: Literal["mujoco"] = config.option("mujoco", "simulation engine")
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )
    seed: int = config.option(0, "random seed", minimum=0)
    processes: int | None = config.option(
        None,
        "number of environment workers, 0: in this process (default: one per core)",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    threads: int = config.option(
        0,
        "number of torch threads; 0: all cores, half of them with preset.collector=overlap",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    ranks: int = config.option(
        1, "number of ranks on this machine (distributed data parallel)", minimum=1, maximum=1024
    )
    device: Literal["auto", "cpu", "cuda"] = config.option(
        "auto", "device of the network; auto: a GPU if there is one"
    )
    validate_every: int = config.option(250_000, "steps between validations", minimum=1)
    validation_starts: str | None = config.option(
        None, "start states of validations: own (default), bank:DIR/SKILL, or a file"
    )
    validation_seed: int = config.option(
        VALIDATION_SEED,
        "seed of validation episodes; differs from seed=0, on which `tpsrl eval` reports",
        minimum=0,
    )
    validation_episodes: int = config.option(
        100,
        "number of episodes of each validation; 0: none",
        minimum=0,
        maximum=config.MOST_EPISODES,
    )
    logger: str = config.option(
        "tensorboard",
        "comma-separated loggers besides metrics.jsonl: tensorboard, wandb, trackio, or none",
    )
    checkpoint_minutes: float = config.option(5.0, "minutes between checkpoints", minimum=0)
    demos: str | None = config.option(
        None,
        "comma-separated folders of demonstrations for an imitation loss "
        "(preset.ppo.imitation_coef)",
    )
    teacher: str | None = config.option(
        None,
        "teacher that labels every state: a checkpoint, or the folder of a training (default: "
        "the shipped teacher, if preset.ppo.teacher_coef is not 0)",
    )
    init: str | None = config.option(
        None, "initial weights: a checkpoint, or the folder of a training, of the same skill"
    )
    encoder: str | None = config.option(
        None, "initial visual encoder: a checkpoint, or the folder of a training, of any skill"
    )
    frozen: bool = config.option(False, "freeze the visual encoder")
    resume: str | None = config.option(
        None, "folder of a training to resume; auto: resume `out` if it holds one"
    )
    out: str | None = config.option(None, "output folder (default: out/train/SKILL)")

    @staticmethod
    def of_earlier(entries: dict[str, Any]) -> dict[str, Any]:
        """The entries of a config.yaml; earlier versions wrote `task` as KEY:VALUE,KEY:VALUE.

        Raises:
            ValueError: a value of it is no number.
        """
        entries, preset = dict(entries), entries.get("preset")
        if "task" in entries:
            own = training_task.of_text(entries["task"])
            # SKILL.KEY, which only a preset has now, is of the skill that is trained, or of none.
            of_one = own.get(str(entries.get("skill")), {})
            own = {key: value for key, value in own.items() if not isinstance(value, dict)}
            entries["task"] = own | (of_one if isinstance(of_one, dict) else {})
        if isinstance(preset, dict) and "task" in preset:
            entries["preset"] = {**preset, "task": training_task.of_text(preset["task"])}
        return entries


def choose(word: str | None) -> Command:
    """The training of a skill; the word may be missing when another training is resumed.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, TrainingSettings, run, load=load))


def load(
    overrides: Sequence[str], schema: type[TrainingSettings] = TrainingSettings
) -> TrainingSettings:
    """The settings of a new training, or with `resume=DIR` those of an earlier one, changed.

    `schema` has the defaults of a new one.

    Raises:
        UserError: a setting is not valid, the folder is none of a training, or of another skill,
            or what it is to begin with does not fit.
    """
    overrides = resumed(overrides)
    given = dict(o.split("=", 1) for o in overrides if "=" in o)
    folder = given.get("resume")
    if folder is not None:  # starts= is the same as start_states=, which is what was kept
        overrides = [f"start_states={o[7:]}" if o.startswith("starts=") else o for o in overrides]
    if folder is None:
        settings: TrainingSettings = by_skill.load(schema, overrides)
        from tpsrl.commands import fine_tuning

        return fine_tuning.begun(settings, given)
    path = files.user_path(folder, "resume") / _CONFIG
    if not path.is_file():
        raise UserError(f"resume: {folder} is not the folder of a training (no {_CONFIG})")
    for name in ("init", "encoder"):
        if name in given:
            raise UserError(f"{name}: {folder} has weights of its own; leave {name} out, or resume")
    settings = config.load(schema, overrides, path)
    own = config.load(schema, [], path)
    if settings.skill != own.skill:
        raise UserError(f"resume: {folder} trains {own.skill}, not {settings.skill}")
    if settings.frozen != own.frozen:
        state = "frozen" if own.frozen else "trained"
        raise UserError(f"frozen: the encoder of {folder} is {state}; leave frozen out, or resume")
    return dataclasses.replace(settings, out=folder)


def resumed(overrides: Sequence[str]) -> list[str]:
    """What was asked for, where `resume=auto` is the folder, or nothing if that has no training.

    Ranks that were started anew go on with what they have saved, whatever they were told at first;
    with that of another job they do not.
    """
    given = dict(o.split("=", 1) for o in overrides if "=" in o)
    job = "" if "resume" in given else ranks.restarted()
    if given.get("resume") != _AUTO and not job:
        return list(overrides)
    out = given.get("out") or f"out/train/{given.get('skill', '')}"
    rest = [o for o in overrides if not o.startswith("resume=")]
    folder = files.user_path(out)
    if not (folder / _LATEST).is_file() or (job and not _is_of(job, folder)):
        return rest
    return [f"resume={out}", *(o for o in rest if o.partition("=")[0] not in _ONCE)]


def _is_of(job: str, folder: Path) -> bool:
    """Whether a training was begun, or last gone on with, by this job."""
    try:
        with (folder / _CONFIG).open(encoding="utf-8", errors="replace") as file:
            return any(line.rstrip("\n") == f"# {job}" for line in file)
    except OSError:
        return False


def run(settings: TrainingSettings) -> int:
    """Trains; 0 when all steps are done, 128 and the signal's number when it was stopped."""
    from tpsrl.rl.run import sizes

    settings = _with_runs(_checked(settings))
    if settings.ranks > 1 and not ranks.in_job():
        with locks.hold(Path(str(settings.out))):  # or the ranks would say so, each of them
            sizes.check_ranks(settings.ranks)
            _beginning(settings)
            ranks.device_of(settings.device)
        return ranks.begin(settings.ranks, settings, settings.skill)
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
    """Settings whose starts are within runs of the scripted skill, recorded now, if it is asked so.

    Raises:
        UserError: the skill has no scripted version, or this is one of several ranks, which would
            all record.
    """
    count, resumed = settings.preset.along, settings.resume is not None
    if not count or resumed or settings.start_states is not None:
        return settings
    if ranks.in_job():
        raise UserError(
            "preset.along: record runs first, by tpsrl demos SKILL agent=scripted states=12, and "
            "name them by start_states=own:0.5,along:DIR:0.5"
        )
    from skills import registry
    from tpsrl.commands import demos

    if registry.get(settings.skill).scripted is None:
        raise UserError(
            f"preset.along: {settings.skill} has no scripted version to record; nearest: 0"
        )
    out = Path(str(settings.out))
    _beginning(settings)
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
        skill_modules=settings.skill_modules,
        seed=settings.seed,
        processes=settings.processes or None,
        out=str(out / _RUNS),
    )
    code = demos.run(recorded)
    assert code == 0
    starts = f"own:0.25,rearranged:0.25,along:{out / _RUNS}:0.5"
    return dataclasses.replace(settings, start_states=_whole_paths(starts, "preset.along"))


def _train(settings: TrainingSettings, group: "Group") -> int:
    """What one rank does of it."""
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
            task, imitation, teacher = ranks.in_turn(
                group, lambda: training_task.make(settings, group.rank)
            )
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
                _check_banks(checkpoint.get("deploy", dict), task.deploy)
                trainer.resume(checkpoint)
            if group.rank == 0:
                named = "".join(f"# {job}\n" for job in ranks.jobs())
                files.write_text(out / _CONFIG, named + config.to_yaml(settings))
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
        return 0
    if group.rank == 0:
        print(f"stopped; `tpsrl train resume={out}` goes on")
    return 128 + signal.Signals[stopped]


def _beginning(settings: TrainingSettings) -> "Checkpoint | None":
    """What a training goes on from, if it does; refuses what cannot be begun or gone on with."""
    from tpsrl.rl.run import metrics
    from tpsrl.rl.run.checkpoint import BEST, FOLDER
    from tpsrl.rl.run.curves import CURVE
    from tpsrl.rl.run.trainer import check_resumable, load_latest

    out = Path(str(settings.out))
    if settings.resume is None and holds_training(out):
        raise UserError(
            f"out: {out} holds a training; resume={out} resumes it; or choose another out"
        )
    files.check_replaceable(out, (_CONFIG, _LATEST, f"{FOLDER}/{BEST}", metrics.METRICS, CURVE))
    if settings.resume is None:
        return None
    checkpoint = load_latest(out)
    check_resumable(checkpoint, settings.preset)
    if settings.delay != checkpoint.get("deploy", dict).get("delay", False):
        given = str(settings.delay).lower()
        raise UserError(f"delay: {given}, but the training has been begun otherwise; leave it out")
    if (out / metrics.METRICS).is_file():
        for _ in metrics.read(out):  # refuses what is none
            pass
    return checkpoint


def _forget(out: Path) -> None:
    """Removes what a training has written that was refused before it had learned anything."""
    from tpsrl.rl.run.curves import CURVE
    from tpsrl.rl.run.loggers import TENSORBOARD
    from tpsrl.rl.run.metrics import METRICS

    for name in (_CONFIG, METRICS, CURVE):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / TENSORBOARD, ignore_errors=True)


def holds_training(out: Path) -> bool:
    """Whether a folder has checkpoints that a new training there would replace.

    One that was killed before its first checkpoint has at most a policy that a validation chose,
    and begins anew.
    """
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run.metrics import METRICS

    folder = out / checkpoints.FOLDER
    killed = (out / METRICS).is_file() and not (folder / checkpoints.LATEST).exists()
    return folder.exists() and not killed


def _weights(settings: TrainingSettings) -> "Checkpoint | None":
    """What a new training's weights are taken from."""
    from tpsrl.commands.fine_tuning import widened
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    if settings.init is not None:
        return widened(checkpoints.load(settings.init, field="init"), settings)
    if settings.encoder is None:
        return None
    whole = checkpoints.load(settings.encoder, field="encoder")
    return warm_start.EncoderOnly(whole.path, whole.tensors, whole.note, whole.field)


def _start(num_envs: int, processes: int, count: int) -> str:
    """What is started, for people."""
    where = f"in {processes} workers" if processes > 1 else "in one worker"
    where = where if processes else "in this process"
    each = f" on each of {count} ranks" if count > 1 else ""
    return f"starting {num_envs} environments {where}{each}"


def _checked(settings: TrainingSettings) -> TrainingSettings:
    """Settings with whole paths, checked as far as it takes no time.

    Raises:
        UserError: collector, encoder or logger is not there, or a file or folder is not right.
    """
    from tpsrl.rl.run import loggers, sizes

    check(settings.preset)
    settings.preset.check_surroundings(settings.processes, bool(settings.demos))
    check_depth(settings.preset.policy.encoder, (settings.depth,) * 2)
    training_task.changes(settings)
    sizes.check(settings.preset, settings.depth)
    loggers.check(settings.logger)
    out = files.check_writable(settings.out or f"out/train/{settings.skill}")
    return dataclasses.replace(
        settings,
        out=str(out),
        teacher=settings.teacher or default_teacher(settings.preset),
        start_states=_start_states(settings),
        starts=None,
        validation_starts=_validation_starts(settings),
    )


def default_teacher(preset: TrainSettings) -> str | None:
    """The teacher where none is named: the one that comes with the skill, if there is to be one."""
    from skills.policies.pretrained import WORD

    return WORD if preset.ppo.teacher_coef > 0.0 else None


def _heading(settings: TrainingSettings) -> str:
    """What is to be trained; it comes before the seconds that loading takes."""
    preset = settings.preset
    verb = "going on with" if settings.resume else "training"
    return f"{verb} {settings.skill} for {preset.steps:,} steps, preset {preset.name}; loading"


def check(preset: TrainSettings) -> None:
    """Refuses at once what would fail only after the episodes have been made.

    Raises:
        UserError: collector or encoder is unknown (names the nearest), or settings of the learner
            do not fit together.
    """
    from tpsrl.rl.collection.settings import COLLECTORS

    if preset.collector not in COLLECTORS:
        raise unknown("preset.collector", preset.collector, COLLECTORS)
    preset.ppo.check("preset.ppo.")
    steps = preset.num_envs * preset.num_steps
    if preset.ppo.minibatches > steps:
        raise UserError(
            f"preset.ppo.minibatches: {preset.ppo.minibatches} is more than the {steps:,} steps of "
            "a rollout"
        )
    preset.preemption_settings().check("preset.")
    for field, value in (("min_batch", preset.min_batch), ("max_batch", preset.max_batch)):
        if value > preset.num_envs:
            raise UserError(
                f"preset.{field}: {value} is more than the {preset.num_envs} environments"
            )
    preset.policy.check("preset.policy.")
    if preset.sensors and preset.sensors not in SENSORS:
        raise unknown("preset.sensors", preset.sensors, SENSORS)
    if preset.policy.encoder not in ENCODER_NAMES:
        from tpsrl.rl.policy.encoder_registry import check_encoder  # with torch, which takes long

        check_encoder(preset.policy.encoder, "preset.policy.encoder")


def set_up(preset: TrainSettings, processes: int | None, threads: int, ranks: int = 1) -> int:
    """Makes this process ready to learn; how many workers it has.

    It shares the cores with the others of so many `ranks` on this machine.
    """
    import torch

    from tpsrl.rl.collection.threads import learner_threads
    from tpsrl.runtime import machine

    cores = max(machine.cores() // ranks, 1)
    torch.set_num_threads(threads or learner_threads(cores, preset.collector))
    machine.keep_memory()
    return min(cores if processes is None else processes, preset.num_envs)


def _start_states(settings: TrainingSettings) -> str | None:
    """Where to start, with whole paths, so that the training can be resumed from anywhere."""
    given = [text for text in (settings.start_states, settings.starts) if text is not None]
    if len(set(given)) > 1:
        raise UserError(f"start_states: '{given[0]}' and starts={given[1]} contradict each other")
    field = "starts" if settings.start_states is None else "start_states"
    return _whole_paths(given[0], field) if given else None


def _validation_starts(settings: TrainingSettings) -> str | None:
    """Where validations start; they go through it in order, so that it has one part."""
    from skills.starts.mixture import is_mixture, parse

    text, field = settings.validation_starts, "validation_starts"
    if text is None:
        return None
    whole = _whole_paths(text, field)
    if is_mixture(text) and len(parse(text)) > 1:
        raise UserError(f"{field}: '{text}' has several parts; choose one of them")
    return whole


def _whole_paths(text: str, field: str) -> str:
    from skills.starts.mixture import is_mixture, whole_paths
    from skills.starts.recorded import load_starts

    with renamed("starts", field):
        if is_mixture(text):
            return whole_paths(text)
        path = Path(os.path.realpath(files.user_path(text, "starts")))
        load_starts(path)  # refuses what is none
    return str(path)


def _check_banks(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to go on with a bank that is not the one of before: its starts would be others."""
    before = then.get("banks", {})
    for folder, digest in now.get("banks", {}).items():
        if before.get(folder, digest) != digest:
            raise UserError(
                f"start_states: bank:{folder} is not the one that the training began with "
                f"({digest}, it was {before[folder]})"
            )
