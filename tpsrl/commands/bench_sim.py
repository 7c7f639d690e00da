"""`tpsrl bench sim`: measures the speed of simulation on this machine."""

import dataclasses
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.runtime import files, progress

DESCRIPTION = """Measures control steps, depth frames and both together per second on one core, in
free motion and in contact, and on several cores. For every skill it also measures steps with
observation and reward. Compares pictures of depth, of colour and of both, and the depth renderer
with MuJoCo's ray casting, in speed and accuracy. Prints tables and writes bench.json."""


@dataclasses.dataclass(frozen=True, slots=True)
class BenchSimSettings:
    """Settings of `tpsrl bench sim`."""

    seconds: float = config.option(
        3.0, "seconds per number of objects and situation", minimum=0.1, maximum=86_400
    )
    processes: int | None = config.option(
        None,
        "maximum number of processes (default: all cores)",
        minimum=1,
        maximum=config.MOST_PROCESSES,
    )
    out: str = config.option("out/bench", "folder for bench.json")


def run(settings: BenchSimSettings) -> int:
    """Measures, prints tables and writes bench.json."""
    progress.say(f"measuring engine and skills, {settings.seconds:g} s for each figure")
    from rich.console import Console

    from skills.envs import bench as skills_bench
    from tpsrl.runtime import machine
    from tpsrl.sim import bench

    folder = files.check_writable(settings.out)
    console = Console()
    options = bench.Options(settings.seconds, settings.processes or machine.cores())
    with progress.phases(console, "measuring") as say:
        report = bench.measure(options, say)
        report["skills"] = skills_bench.measure(settings.seconds, say)
    for table in _tables(report):
        console.print(table)
    files.write_json(folder / "bench.json", report)
    print(f"{folder / 'bench.json'}")
    return 0


def _tables(report: dict[str, Any]) -> list[Any]:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rates = Table("per second, one core", box=SIMPLE_HEAD, pad_edge=False)
    homes = report["homes"]
    for home in homes:
        head = f"{home['objects']} objects\n{home['situation']}"
        rates.add_column(head, justify="right", no_wrap=True)
    for key in homes[0]:
        if key.endswith("_per_s"):
            name = key.removesuffix("_per_s").replace("_", " ")
            rates.add_row(name, *(f"{home[key]:,.0f}" for home in homes))
    rates.add_row("robot in contact", *(f"{home['robot_in_contact']:.0%}" for home in homes))

    pictures = Table("pictures per second, one core (time of depth alone)", box=SIMPLE_HEAD)
    pictures.add_column("")
    for row in report["pictures"]:
        pictures.add_column(f"{row['size']} x {row['size']}", justify="right", no_wrap=True)
    for name in [name for name in report["pictures"][0] if name != "size"]:
        cells = [f"{row[name]:,.0f} ({row['depth'] / row[name]:.2f})" for row in report["pictures"]]
        pictures.add_row(name.replace("_", " "), *cells)

    depth = Table("depth caster", box=SIMPLE_HEAD, pad_edge=False)
    for row in report["depth"]:
        depth.add_column(f"{row['size']} x {row['size']}", justify="right")
    faster = [f"{row['times_faster_than_multi_ray']:.1f}" for row in report["depth"]]
    within = [f"{row['within_1_cm']:.3%}" for row in report["depth"]]
    depth.add_row("times faster than mj_multiRay", *faster)
    depth.add_row("within 1 cm of mj_ray", *within)

    tasks = Table("skills, 12 objects, one core", box=SIMPLE_HEAD, pad_edge=False)
    heads = (
        "",
        "steps/s\nstate",
        "steps/s\ndepth 64",
        "task, us\n1 home",
        "task, us each\n8 homes",
    )
    for head in heads:
        tasks.add_column(head, justify="right" if head else "left", no_wrap=True)
    for row in report["skills"]:
        name, state, with_depth, one, eight = row.values()
        tasks.add_row(name, f"{state:,.0f}", f"{with_depth:,.0f}", f"{one:.0f}", f"{eight:.0f}")

    several = Table("processes, steps with depth 64", box=SIMPLE_HEAD, pad_edge=False)
    several.add_column("together per second", justify="right")
    several.add_column("each", justify="right")
    for row in report["processes"]:
        total, each = row["steps_with_depth_64_per_s"], row["per_process"]
        several.add_row(str(row["count"]), f"{total:,.0f}", f"{each:,.0f}")

    times = Table("milliseconds", box=SIMPLE_HEAD, pad_edge=False)
    times.add_column("", justify="right")
    for name, value in report["milliseconds"].items():
        times.add_row(name, f"{value:.2f}")
    return [rates, pictures, tasks, depth, several, times]


COMMAND = Command(DESCRIPTION, BenchSimSettings, run)
