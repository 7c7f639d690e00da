"""Times other libraries and tpsrl on the environment of `tpsrl.rl.bench.synthetic_env`.

    python -m benchmarks.peers NAME[,NAME...] [steps=40000] [out=FILE.json] ...
    python -m benchmarks.peers all

NAME is tpsrl_sync, tpsrl_nover, tpsrl_ver, tpsrl_overlap, sample_factory_sync,
sample_factory_async, habitat_baselines_ver, habitat_baselines_ver_overlap or
habitat_baselines_ddppo. The first run installs a library into out/peers/LIBRARY, from the package
index; its output goes to out/peers/runs/NAME/log.txt. Needs Linux and Python 3.11 or 3.12.

For each peer, prints steps per second as counted by the environments, learning included; their
share of the steps that the environments would make if they never waited; and samples per second as
counted by the library from the rollouts it learned from, in which a step may occur twice.
"""

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.launch import measure
from benchmarks.peers.peers import PEERS
from benchmarks.peers.settings import Settings
from tpsrl import config
from tpsrl.errors import RunError, UserError, unknown
from tpsrl.rl.bench import synthetic_env as core


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Options of the command."""

    steps: int = config.option(40_000, "steps of experience that are timed", minimum=1)
    warm_up: int = config.option(4, "rollouts before them", minimum=1)
    variant: str = config.option("waiting", "what a step does: waiting, busy or none")
    seed: int = config.option(0, "of the environments' durations", minimum=0)
    folder: str = config.option("out/peers", "where libraries are installed and logs go")
    out: str = config.option("", "the JSON; FOLDER/NAME.json if not given")


def main(arguments: Sequence[str]) -> None:
    """Runs the peers one after another and writes the results after each.

    Raises:
        UserError: a peer or option is unknown.
        RunError: a peer failed.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, end="")
        for name, value, text in config.describe(Options):
            print(f"    {name}={value}: {text}")
        return
    name, options = arguments[0], config.load(Options, config.parse(arguments[1:]))
    names = tuple(PEERS) if name == "all" else tuple(name.split(","))
    for each in names:
        if each not in PEERS:
            raise unknown("peer", each, (*PEERS, "all"))
    if options.variant not in core.VARIANTS:
        raise unknown("variant", options.variant, core.VARIANTS)
    folder = Path(options.folder).resolve()
    out = Path(options.out) if options.out else folder / f"{name}.json"
    settings = Settings(
        variant=options.variant, seed=options.seed, steps=options.steps, warm_up=options.warm_up
    )
    ceiling = core.ceiling(settings.num_envs, settings.seed)
    print(f"environment: {json.dumps(core.describe())}")
    print(f"{settings.num_envs} environments that never wait: {ceiling:.0f} samples/s", flush=True)
    peers: list[dict[str, Any]] = []
    result = {
        "environment": core.describe(),
        "ceiling": ceiling,
        "cores": len(os.sched_getaffinity(0)),
        "peers": peers,
    }
    print(f"{'':30}{'steps/s':>8}{'of the ceiling':>16}{'samples/s':>11}{'load':>6}", flush=True)
    for each in names:
        found = measure(each, settings, folder)
        peers.append(found)
        made, level = found["env_steps_per_s"], found["env_steps_per_s"] / found["ceiling"]
        counted = found["samples_per_s"]["mean"]
        line = f"{made:8.0f}{level:16.0%}{counted:11.0f}{found['load']:6.1f}"
        print(f"{each:30}{line}", flush=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n")
    for each in names:
        for note in PEERS[each].notes:
            print(f"{each}: {note}")
    print(f"written to {out}")


if __name__ == "__main__":
    # Raised as an exception, so that started processes are ended.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        main(sys.argv[1:])
    except (UserError, RunError) as error:
        print(f"peers: error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
