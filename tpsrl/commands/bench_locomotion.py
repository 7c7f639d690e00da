"""`tpsrl bench locomotion`: trains ant and humanoid, the tasks of GPU-accelerated simulation."""

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError, unknown
from tpsrl.rl.bench.running import RUNNING_TASKS
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import files, progress
from tpsrl.training.checks import check
from tpsrl.training.run import holds_training, set_up

if TYPE_CHECKING:
    from tpsrl.rl.envs.vec_env import Json

DESCRIPTION = """Trains ant and humanoid to run (Liang et al. 2018), on the models that gymnasium
ships and MuJoCo's threads. Prints the return over the last 100 episodes, and when it first reached
the paper's thresholds. Writes locomotion.json, locomotion.png, and a training for each task."""


@dataclasses.dataclass(frozen=True, slots=True)
class BenchLocomotionSettings:
    """Settings of `tpsrl bench locomotion`."""

    tasks: str = config.option("ant,humanoid", "comma-separated tasks")
    ant: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "gpu_sim_ant",
        "training preset of the ant; ant.KEY=... overrides an entry",
        files=True,
    )
    humanoid: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "gpu_sim",
        "training preset of the humanoid; humanoid.KEY=... overrides an entry",
        files=True,
    )
    costs: Literal["mean", "sum"] = config.option(
        "mean",
        "costs of torques and actions: mean over the motors, as in Roboschool, or their sum, as in "
        "equation 1 of the paper",
    )
    threads: int = config.option(
        0,
        "number of threads of the simulation and of torch; 0: all cores",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    seed: int = config.option(0, "random seed", minimum=0)
    out: str = config.option("out/locomotion", "output folder")


def run(settings: BenchLocomotionSettings) -> int:
    """Trains the tasks and writes the report; returns 128 + signal number when stopped."""
    import signal

    names = _names(settings.tasks)
    for name in names:
        _check(name, _preset(settings, name))
    folder = files.check_writable(settings.out)
    for name in names:
        if holds_training(folder / name):
            raise UserError(f"out: {folder / name} contains a training; choose another out")
    progress.say(f"training {settings.tasks}")
    from rich.console import Console

    from tpsrl.rl.run import metrics

    console, found = Console(), dict[str, Any]()
    for name in names:
        set_up(_preset(settings, name), 0, settings.threads)
        begun = time.monotonic()
        stopped = _train(settings, name, folder / name, console)
        rows = list(metrics.read(folder / name))
        found[name] = _result(name, rows) | {"seconds": time.monotonic() - begun}
        if stopped:
            return 128 + signal.Signals[stopped]
    report = {"settings": config.flat(settings), "tasks": found}
    console.print(_table(found))
    files.write_json(folder / "locomotion.json", report)
    _draw(found, folder / "locomotion.png")
    print(f"{folder / 'locomotion.json'}\n{folder / 'locomotion.png'}")
    return 0


def _names(tasks: str) -> list[str]:
    """Returns the names of the chosen tasks.

    Raises:
        UserError: a name is unknown or repeated.
    """
    names = tasks.split(",")
    for name in names:
        if name not in RUNNING_TASKS:
            raise unknown("tasks", name, RUNNING_TASKS)
    if len(set(names)) < len(names):
        raise UserError(f"tasks: {tasks} contains a duplicate")
    return names


def _preset(settings: BenchLocomotionSettings, name: str) -> TrainSettings:
    """Returns the training preset of a task."""
    preset: TrainSettings = getattr(settings, name)
    return preset


def _check(name: str, preset: TrainSettings) -> None:
    """Refuses presets that need a camera or a privileged state, which these tasks do not have.

    Raises:
        UserError: names the field.
    """
    check(preset, f"{name}.")
    preset.check_surroundings(0, prefix=f"{name}.")
    if preset.policy.encoder != "state":
        raise UserError(
            f"{name}.policy.encoder: {preset.policy.encoder}, but there is no camera; nearest: "
            "state"
        )
    if preset.policy.critic:
        raise UserError(f"{name}.policy.critic: there is no privileged state; set it to false")


def _train(settings: BenchLocomotionSettings, name: str, out: Path, console: Any) -> str:
    """Trains a task; returns "" or the name of the signal that stopped it."""
    from tpsrl.rl.bench.running_env import RunningVecEnvFactory
    from tpsrl.rl.run.trainer import Trainer, TrainSchedule, TrainTask
    from tpsrl.rl.run.watch import Watch
    from tpsrl.runtime import machine

    preset, threads = _preset(settings, name), settings.threads or machine.cores()
    factory = RunningVecEnvFactory(name, settings.seed, threads, settings.costs)
    with Watch(name, preset.steps, console) as watch:
        trainer = Trainer(
            preset,
            TrainSchedule(validation_episodes=0),
            out,
            TrainTask(factory),
            watch,
            seed=settings.seed,
            logger="none",
        )
        try:
            return trainer.train()
        finally:
            trainer.close()


def _result(name: str, rows: list["Json"]) -> "Json":
    """Returns the learning curve of a training, and when it first reached each threshold."""
    curve, clock = [], 0.0
    for row in rows:
        clock += sum(row["time"].values())
        if row["return"] is not None:
            curve.append({"steps": row["steps"], "minutes": clock / 60, "return": row["return"]})
    reached = {
        f"{least:.0f}": next((point for point in curve if point["return"] >= least), None)
        for least in RUNNING_TASKS[name].thresholds
    }
    steps = rows[-1]["steps"]
    return {"steps": steps, "samples_per_s": steps / clock, "reached": reached, "curve": curve}


def _table(found: dict[str, "Json"]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in ("steps", "minutes", "samples/s", "return", "best", "thresholds reached after"):
        table.add_column(column, justify="right")
    for name, result in found.items():
        returns = [point["return"] for point in result["curve"]]
        reached = (
            f"{least}: {point['minutes']:.1f} min" if point else f"{least}: not reached"
            for least, point in result["reached"].items()
        )
        table.add_row(
            name,
            f"{result['steps']:,}",
            f"{result['seconds'] / 60:.1f}",
            f"{result['samples_per_s']:,.0f}",
            f"{returns[-1]:,.0f}" if returns else "no episode ended",
            f"{max(returns):,.0f}" if returns else "",
            "\n".join(reached),
        )
    return table


def _draw(found: dict[str, "Json"], path: Path) -> None:
    """Draws the return over steps, one panel per task, with the paper's thresholds."""
    from tpsrl.runtime import figures

    figure = figures.figure(figsize=(5.0 * len(found), 3.6), layout="constrained", dpi=110)
    from matplotlib.ticker import EngFormatter

    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (name, result) in zip(panels, found.items(), strict=True):
        curve = result["curve"]
        axes.plot([point["steps"] for point in curve], [point["return"] for point in curve])
        for least in result["reached"]:
            axes.axhline(float(least), color="k", linewidth=0.8, linestyle="--")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel("steps")
        axes.set_ylabel("return, last 100 episodes")
        axes.set_title(name)
        axes.grid(alpha=0.3)
    with files.atomic(path) as temporary:
        figure.savefig(temporary, format="png")


COMMAND = Command(DESCRIPTION, BenchLocomotionSettings, run)
