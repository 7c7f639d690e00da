"""`tpsrl bench train`: measures how fast this machine trains."""

import dataclasses
from typing import Any

from tpsrl import config
from tpsrl.commands.train import set_up
from tpsrl.rl.settings import TrainSettings

DESCRIPTION = """Collects rollouts of a skill and learns from them, as `tpsrl train` does with the
same settings; prints samples per second, and what the time of a sample goes into: simulation,
rendering and resets (the mean of the worker processes), inference, copying, waiting (for the
slowest worker), learning. Writes train.json."""
POSITIONAL = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What to train, with what, and for how long."""

    skill: str = config.option("pick", "which one")
    collector: str = config.option("sync", "how experience is collected")
    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "cpu_small",
        "rollouts, network and learner; preset.KEY=... changes an entry",
    )
    depth: int = config.option(64, "height and width of the camera, in pixels", minimum=1)
    num_objects: int = config.option(12, "objects in a home, 1 to 30", minimum=1, maximum=30)
    num_episodes: int = config.option(
        63, "base episodes that starts are drawn from", minimum=1, maximum=1008
    )
    processes: int | None = config.option(
        None, "workers for the homes, 0: in this process (default: one for each core)", minimum=0
    )
    threads: int = config.option(0, "of the network's arithmetic; 0: all cores", minimum=0)
    rollouts: int = config.option(12, "that are measured", minimum=1)
    warm_up: int = config.option(12, "rollouts before these", minimum=0)
    seed: int = config.option(0, "of starts, weights and actions", minimum=0)
    out: str = config.option("out/bench", "folder for train.json")


def run(settings: Settings) -> int:
    """Measures, prints and writes."""
    from rich.console import Console

    from eval import output
    from skills.environment import EnvOptions
    from skills.training import SkillHomesFactory
    from tpsrl import machine
    from tpsrl.rl import bench

    folder = output.check(settings.out)
    processes, threads = set_up(settings.preset, settings.processes, settings.threads)
    chosen = dataclasses.replace(settings.preset, collector=settings.collector)
    camera = (settings.depth, settings.depth) if chosen.policy.encoder != "state" else None
    options = EnvOptions(
        depth=camera, num_objects=settings.num_objects, num_episodes=settings.num_episodes
    )
    factory = SkillHomesFactory(settings.skill, options, settings.seed)
    console = Console()
    with console.status("making episodes") as status:
        factory.prepare()
        report = bench.measure(
            chosen,
            factory,
            processes,
            settings.rollouts,
            settings.warm_up,
            settings.seed,
            say=lambda line: status.update(f"measuring: {line}"),
        )
    run_with = {"processes": processes, "threads": threads, "cores": machine.cores()}
    report = {"settings": config.flat(settings) | run_with, **report}
    console.print(_table(report))
    console.print(_summary(report), highlight=False)
    output.write_json(folder / "train.json", report)
    print(f"{folder / 'train.json'}")
    return 0


def _table(report: dict[str, Any]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("what the time goes into", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("microseconds\na sample", justify="right")
    table.add_column("share", justify="right")
    total = sum(report["seconds"].values())
    for cause, seconds in report["seconds"].items():
        each = 1e6 * seconds / report["samples"]
        table.add_row(cause, f"{each:,.0f}", f"{seconds / total:.0%}")
    return table


def _summary(report: dict[str, Any]) -> str:
    rates, settings = report["samples_per_s"], report["settings"]
    workers = settings["processes"]
    where = f"{workers} workers" if workers else "one process"
    return (
        f"{rates['mean']:,.0f} samples/s (best rollout {rates['max']:,.0f}) over "
        f"{report['samples']:,} samples; {settings['preset.num_envs']} homes in {where}, "
        f"{settings['threads']} threads, {settings['cores']} cores; started in "
        f"{report['start_s']:.1f} s; load average {report['load']:.1f}"
    )
