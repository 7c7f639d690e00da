"""`tpsrl bench train`: measures the speed of training on this machine."""

import dataclasses
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError, unknown
from tpsrl.rl.policy.settings import check_depth
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import files, progress
from tpsrl.training.checks import check, default_teacher
from tpsrl.training.run import set_up
from tpsrl.training.task import load_teacher, task_changes

DESCRIPTION = """Collects rollouts of a skill, or of a synthetic environment with very uneven step
times, and learns from them, alternating between the collectors. Prints samples per second, their
share of the environments' maximum, and the parts of the time of a sample. Writes train.json and
train.png.

task=synthetic_waiting: 16 environments, a process each, sleep during their steps, like a simulator
on an accelerator. task=synthetic_busy: they compute instead."""
SYNTHETIC = {"synthetic_waiting": "waiting", "synthetic_busy": "busy"}
_MOST_ROLLOUTS = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class BenchTrainSettings:
    """Settings of `tpsrl bench train`."""

    task: str = config.option(
        "", "a skill, synthetic_waiting or synthetic_busy (default: the first skill with an object)"
    )
    collector: str = config.option("sync,nover,ver,overlap", "comma-separated collectors")
    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "cpu_small",
        "training preset; preset.KEY=... overrides an entry (preset=synthetic: as in docs/ver.md)",
        files=True,
    )
    depth: int = config.option(
        64, "height and width of the depth image (pixels)", minimum=1, maximum=config.MOST_PIXELS
    )
    num_objects: int = config.option(12, "number of objects, 1 to 30", minimum=1, maximum=30)
    num_episodes: int = config.option(
        63, "number of base episodes to draw start states from", minimum=1, maximum=1008
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )
    auxiliary_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own auxiliary losses"
    )
    teacher: str | None = config.option(
        None,
        "teacher that labels every state: a checkpoint, or the folder of a training (default: "
        "the shipped teacher, if preset.ppo.teacher_coef is not 0)",
    )
    processes: int | None = config.option(
        None,
        "number of environment workers, 0: in this process (default: one per core, or per "
        "synthetic environment); the collectors batch and device have none",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    threads: int = config.option(
        0,
        "number of torch threads; 0: all cores, half of them with overlap",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    rollouts: int = config.option(
        6, "number of measured rollouts per turn", minimum=1, maximum=_MOST_ROLLOUTS
    )
    turns: int = config.option(
        2, "number of turns of each collector", minimum=1, maximum=_MOST_ROLLOUTS
    )
    warm_up: int = config.option(
        12, "number of rollouts before the measured ones", minimum=0, maximum=_MOST_ROLLOUTS
    )
    seed: int = config.option(0, "random seed", minimum=0)
    out: str = config.option("out/bench", "folder for train.json")


def run(settings: BenchTrainSettings) -> int:
    """Measures, prints tables and writes train.json and train.png."""
    settings = dataclasses.replace(settings, task=settings.task or _default_task())
    check(settings.preset)
    check_depth(settings.preset.policy.encoder, (settings.depth,) * 2)
    _check_workers(settings)
    progress.say(f"measuring {settings.collector} with {settings.task}")
    from rich.console import Console

    from tpsrl.rl.bench import measure as bench
    from tpsrl.rl.bench import synthetic_env
    from tpsrl.rl.collection.settings import COLLECTORS
    from tpsrl.rl.run import sizes
    from tpsrl.runtime import machine
    from tpsrl.sim import datasets

    names = settings.collector.split(",")
    for name in names:
        if name not in COLLECTORS:
            raise unknown("collector", name, COLLECTORS)
    if len(set(names)) < len(names):
        raise UserError(f"collector: {settings.collector} contains a duplicate")
    sizes.check(settings.preset, settings.depth)
    folder = files.check_writable(settings.out)
    processes = set_up(settings.preset, _asked(settings), settings.threads)
    console = Console()
    _check_task(settings.task)
    teacher = _teacher(settings)  # before the episodes, which may take minutes
    with datasets.shown(console):
        factory = _factory(settings)
    with progress.phases(console, "measuring") as say:
        report = bench.measure(
            names,
            settings.preset,
            factory,
            processes,
            bench.BenchSchedule(settings.rollouts, settings.turns, settings.warm_up),
            settings.seed,
            say=say,
            teacher=teacher,
            threads=settings.threads,
        )
    run_with: dict[str, Any] = {
        "processes": processes,
        "cores": machine.cores(),
    }
    if settings.task in SYNTHETIC:
        run_with["environment"] = synthetic_env.describe()
    report = {"settings": config.flat(settings) | run_with, **report}
    for table in (_speed(report), _costs(report)):
        console.print(table)
    console.print(_summary(report), highlight=False, soft_wrap=True)
    files.write_json(folder / "train.json", report)
    title = f"{settings.task}, {settings.preset.num_envs} environments, {machine.cores()} cores"
    bench.draw(report, folder / "train.png", title)
    print(f"{folder / 'train.json'}\n{folder / 'train.png'}")
    return 0


def _asked(settings: BenchTrainSettings) -> int | None:
    """Returns the requested number of workers; None means one per core."""
    if settings.processes is None and settings.task in SYNTHETIC:
        return settings.preset.num_envs
    return settings.processes


def _check_workers(settings: BenchTrainSettings) -> None:
    """Refuses too many workers, or a preset that a synthetic task does not support.

    Raises:
        UserError: names the field.
    """
    preset = settings.preset
    preset.check_surroundings(_asked(settings))
    if settings.task not in SYNTHETIC:
        return
    if preset.policy.critic:
        raise UserError(f"preset.policy.critic: {settings.task} has no true state; set it to false")
    if settings.processes is None and preset.num_envs > config.MOST_PROCESSES:
        raise UserError(
            f"preset.num_envs: {preset.num_envs:,} is out of range, must be at most "
            f"{config.MOST_PROCESSES}, since {settings.task} has a process for each environment; "
            "or set processes"
        )


def _check_task(task: str) -> None:
    """Refuses a task that is neither a skill nor synthetic.

    Raises:
        UserError: names the nearest.
    """
    from skills.registry import names

    known = [*names(), *SYNTHETIC]
    if task not in known:
        raise unknown("task", task, known)


def _default_task() -> str:
    """Returns the first skill of plans that needs only an object."""
    from skills.registry import planned, specs

    return next(name for name in planned() if specs()[name].definition.needs == ("object",))


def _factory(settings: BenchTrainSettings) -> Any:
    """Returns the factory of the environments to measure."""
    from skills.envs.options import EnvOptions
    from skills.envs.training import TrainingVecEnvFactory
    from tpsrl.rl.bench.synthetic import SyntheticVecEnvFactory

    if settings.task in SYNTHETIC:
        return SyntheticVecEnvFactory(SYNTHETIC[settings.task], settings.seed)
    preset = settings.preset
    options = EnvOptions.of(
        settings.task,
        depth=settings.depth if preset.policy.encoder != "state" else None,
        critic=preset.policy.critic,
        sensors=preset.sensors or None,
        settings=task_changes(preset.task, settings.task, "preset.task"),
        num_objects=settings.num_objects,
        num_episodes=settings.num_episodes,
    )
    factory = TrainingVecEnvFactory(options, settings.seed)
    making = None if settings.processes is None else max(settings.processes, 1)
    factory.prepare(making)
    return factory


def _teacher(settings: BenchTrainSettings) -> Any:
    """Returns the teacher that labels the states, or None without a teacher.

    Raises:
        UserError: see `tpsrl.training.task.load_teacher`.
    """
    where = settings.teacher or default_teacher(settings.preset)
    if where is None:
        return None
    if settings.task in SYNTHETIC:
        raise UserError(f"teacher: {settings.task} has no state to label")
    return load_teacher(settings.task, where, settings.preset)


def _table(title: str, *columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _speed(report: dict[str, Any]) -> Any:
    """Returns the table of speeds, with a row for each collector."""
    table = _table(
        "samples/s, learning included (level: of the ceiling, mean / best)",
        "mean", "best\nrollout", "mean /\nbest", "of its\nbound",
        "of the\nceiling", "level\nkept", "steps\nof one", "to\nsync",
    )  # fmt: skip
    found = report["collectors"]
    sync = found.get("sync", {}).get("samples_per_s", {}).get("mean")
    for name, row in found.items():
        rates, (least, _, most) = row["samples_per_s"], row["steps_of_environment"]
        table.add_row(
            name,
            f"{rates['mean']:,.0f}",
            f"{rates['max']:,.0f}",
            f"{rates['mean_of_max']:.2f}",
            f"{row['of_bound']:.0%}",
            f"{row['of_ceiling']:.0%}",
            f"{row['mean_of_max_level']:.2f}",
            f"{least}-{most}",
            f"{rates['mean'] / sync:.2f}" if sync else "",
        )
    return table


def _costs(report: dict[str, Any]) -> Any:
    """Returns the table of microseconds per sample by cause, and of what environments wait for."""
    found = report["collectors"]
    table = _table("microseconds a sample", *found)
    causes = next(iter(found.values()))["seconds"]
    for cause in causes:
        cells = (row["seconds"][cause] / row["samples"] for row in found.values())
        table.add_row(cause, *(f"{1e6 * seconds:,.0f}" for seconds in cells))
    table.add_section()
    for cause in next(iter(found.values()))["waits"]:
        cells = (row["waits"][cause] / row["took_s"] for row in found.values())
        table.add_row(f"environments wait for {cause}", *(f"{share:.0%}" for share in cells))
    return table


def _summary(report: dict[str, Any]) -> str:
    settings, found = report["settings"], report["collectors"]
    workers = settings["processes"]
    where = f"{workers} workers" if workers else "one process"
    counted = len(next(iter(found.values()))["rollouts"])
    threads = "/".join(dict.fromkeys(str(row["threads"]) for row in found.values()))
    return (
        f"{counted} rollouts of {settings['preset.num_envs']} x {settings['preset.num_steps']} "
        f"steps each; {settings['task']} in {where}, {threads} threads, "
        f"{settings['cores']} cores; load average {report['load']:.1f}"
    )


COMMAND = Command(DESCRIPTION, BenchTrainSettings, run)
