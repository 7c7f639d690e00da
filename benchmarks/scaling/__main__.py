"""Measures and simulates training on several ranks.

    python -m benchmarks.scaling [ranks=5] [slow=4] [rules=none,60%,...] [key=value ...]

Several ranks collect and learn together on this machine, under one preemption rule after another.
Their environments only wait, and the last rank is slow. Prints fresh samples per second, and
compares them with a discrete-event simulation of the same ranks. Then simulates up to 256 GPUs:
more ranks of this kind, and the benchmarks of the DD-PPO and VER papers next to their results.
Writes scale.json and scale.png.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.scaling import cluster, pictures, ranks, sweeps
from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import sizes
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import files, machine, progress

_TINY = PolicySettings(encoder="state", lstm_layers=1, lstm_width=32, state_width=32)
_MINIBATCHES = 2
_MOST_ROLLOUTS = 100_000
_LONGEST_ROLLOUT = 10_000  # steps
_RANK_BYTES, _WORKER_BYTES = 100e6, 10e6  # minimum per process


@dataclasses.dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Settings of the measurement and of the simulation."""

    ranks: int = config.option(
        5, "on this machine; 0: only simulate", minimum=0, maximum=config.MOST_PROCESSES
    )
    slow: float = config.option(
        4.0, "times as long take the last rank's steps", minimum=1, maximum=1000
    )
    rules: str = config.option("none,80%,60%,optimal,marginal", "of preemption, by commas")
    collector: str = config.option("ver", "of the ranks: sync, nover or ver")
    num_envs: int = config.option(
        4, "environments of a rank", minimum=1, maximum=config.MOST_PROCESSES
    )
    num_steps: int = config.option(
        32, "steps of each in a rollout", minimum=1, maximum=_LONGEST_ROLLOUT
    )
    rollouts: int = config.option(
        6, "of each turn that are measured", minimum=1, maximum=_MOST_ROLLOUTS
    )
    turns: int = config.option(2, "that each rule has", minimum=1, maximum=_MOST_ROLLOUTS)
    warm_up: int = config.option(2, "rollouts before these", minimum=0, maximum=_MOST_ROLLOUTS)
    simulate: int = config.option(256, "up to so many GPUs; 0: none", minimum=0, maximum=2**16)
    seeds: int = config.option(3, "of each simulation", minimum=1, maximum=1000)
    seed: int = config.option(0, "of environments, weights and actions", minimum=0)
    out: str = config.option("out/bench", "folder for scale.json and scale.png")


def main(words: Sequence[str]) -> None:
    """Measures, simulates, prints and writes the results."""
    settings = config.load(ScalingSettings, config.parse(words))
    names = settings.rules.split(",")
    for name in names:
        if name not in sweeps.RULES:
            raise unknown("rules", name, sweeps.RULES)
    if len(set(names)) < len(names):
        raise UserError(f"rules: {settings.rules} contains a duplicate")
    if settings.collector not in cluster.COLLECTORS:
        raise unknown("collector", settings.collector, cluster.COLLECTORS)
    _check_ranks(settings)
    folder = files.check_writable(settings.out)
    rules = {name: sweeps.RULES[name] for name in names}
    report: dict[str, Any] = {"settings": config.flat(settings) | {"cores": machine.cores()}}
    console = Console()
    if settings.ranks:
        plan = ranks.RankPlan(
            settings.ranks,
            settings.slow,
            settings.rollouts,
            settings.turns,
            settings.warm_up,
            seed=settings.seed,
        )
        with progress.phases(console, "measuring") as say:
            report["measured"] = ranks.measure(_train(settings), rules, plan, say)
        with progress.phases(console, "simulating the same ranks"):
            report["simulated"] = sweeps.of_ranks(
                report["measured"], _train(settings), rules, settings.seeds, settings.simulate
            )
    if settings.simulate:
        with progress.phases(console, "simulating") as say:
            report["papers"] = sweeps.of_papers(settings.simulate, settings.seeds, say)
    for table in _tables(report):
        console.print(table)
    files.write_json(folder / "scale.json", report)
    print(folder / "scale.json")
    if settings.simulate:
        pictures.draw_scaling(report, folder / "scale.png")
        print(folder / "scale.png")


def _check_ranks(settings: ScalingSettings) -> None:
    """Checks that the ranks can be measured and fit this machine.

    Raises:
        UserError: names the field.
    """
    if settings.ranks == 1:
        raise UserError("ranks: one rank is never preempted; must be 0 or at least 2, got 1")
    if settings.ranks == 0:
        if settings.simulate == 0:
            raise UserError("simulate: with ranks=0 there is nothing to do; nearest: 1")
        return
    steps = settings.num_envs * settings.num_steps
    if steps < _MINIBATCHES:
        raise UserError(
            f"num_steps: a rollout of {steps} step is less than {_MINIBATCHES} mini-batches; "
            f"nearest: {_MINIBATCHES}"
        )
    # One worker per environment, plus the rank itself.
    most = config.MOST_PROCESSES // settings.ranks - 1
    if settings.num_envs > most and most > 0:
        raise UserError(
            f"num_envs: {settings.num_envs} on each of {settings.ranks} ranks are more than "
            f"{config.MOST_PROCESSES} processes; nearest: {most}"
        )
    if most < 1:
        raise UserError(
            f"ranks: {settings.ranks} with their environments are more than "
            f"{config.MOST_PROCESSES} processes; nearest: {config.MOST_PROCESSES // 2}"
        )
    machine.refuse(
        {"ranks": settings.ranks, "num_envs": settings.num_envs},
        lambda given: given["ranks"] * (_RANK_BYTES + given["num_envs"] * _WORKER_BYTES),
        machine.memory_bytes(),
        {},
    )
    sizes.check(_train(settings), 1, "")


def _train(settings: ScalingSettings) -> TrainSettings:
    """Returns training settings small enough for a few cores to run many ranks."""
    base = TrainSettings()
    return dataclasses.replace(
        base,
        num_envs=settings.num_envs,
        num_steps=settings.num_steps,
        collector=settings.collector,
        policy=_TINY,
        ppo=dataclasses.replace(base.ppo, epochs=1, minibatches=_MINIBATCHES),
    )


def _tables(report: dict[str, Any]) -> list[Any]:
    tables = []
    if "measured" in report:
        tables.append(_measured(report))
    if "papers" in report:
        if "growing" in report.get("simulated", {}):
            tables.append(_sweeps("such ranks, simulated", report["simulated"]["growing"]))
        papers = report["papers"]["ddppo"]
        for name in ("homogeneous", "heterogeneous"):
            paper = papers["paper"] if name == "homogeneous" else {}
            tables.append(_sweeps(f"DD-PPO's benchmark, {name}, simulated", papers[name], paper))
        tables.append(_ver(report["papers"]["ver"]))
    return tables


def _table(title: str, *columns: str) -> Any:
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _measured(report: dict[str, Any]) -> Any:
    """Returns a table of this machine's ranks: measured and simulated."""
    measured, simulated = report["measured"], report["simulated"]["rates"]
    title = (
        f"{measured['ranks']} ranks on {report['settings']['cores']} cores, the last "
        f"{measured['slow']:g} times slower"
    )
    table = _table(
        title, "fresh\nsamples/s", "to the\nfirst", "simulated", "to the\nfirst",
        "whole rollouts\nof the last", "of the others",
    )  # fmt: skip
    first = next(iter(measured["rules"]))
    for name, row in measured["rules"].items():
        others = row["shares"][:-1]
        table.add_row(
            name,
            f"{row['samples_per_s']:,.0f}",
            f"{row['samples_per_s'] / measured['rules'][first]['samples_per_s']:.2f}",
            f"{simulated[name]:,.0f}",
            f"{simulated[name] / simulated[first]:.2f}",
            f"{row['shares'][-1]:.0%}",
            f"{sum(others) / len(others):.0%}",
        )
    return table


def _sweeps(title: str, rows: dict[str, Any], paper: dict[str, float] | None = None) -> Any:
    """Returns a table of speeds as multiples of one rank's."""
    sizes = next(iter(rows.values()))["ranks"]
    table = _table(title, *(str(size) for size in sizes))
    for name, row in rows.items():
        table.add_row(name, *(f"{speed:.1f}" for speed in row["speedup"]))
    if paper:
        cells = (f"{paper[str(size)]:g}" if str(size) in paper else "" for size in sizes)
        table.add_row("the paper", *cells)
    return table


def _ver(rows: dict[str, Any]) -> Any:
    """Returns a table of the VER paper's table 1 and the simulation, as multiples of one GPU."""
    sizes = next(iter(rows.values()))["ranks"]
    heads = (f"{who}\n{size}" for size in sizes for who in ("simulated", "paper"))
    table = _table("VER's table 1: samples/s on one GPU, then times that", *heads)
    for name, row in rows.items():
        cells = []
        paper = row["paper"]
        for size, speed in zip(row["ranks"], row["speedup"], strict=True):
            if size == 1:
                cells += [f"{row['alone']:,.0f}", f"{paper['1']}"]
            else:
                cells += [f"{speed:.1f}", f"{paper[str(size)] / paper['1']:.1f}"]
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"scaling: {error}", file=sys.stderr)
        sys.exit(2)
