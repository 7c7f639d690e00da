"""Times other libraries on the synthetic environment of `tpsrl.rl.synthetic_env`.

    python -m benchmarks.peers NAME [steps=40000] [out=FILE.json] ...
    python -m benchmarks.peers all

NAME is sample_factory_sync, sample_factory_async, habitat_baselines_ver,
habitat_baselines_ver_overlap or habitat_baselines_ddppo. The first run installs the library into
out/peers/LIBRARY, from the package index; what it prints goes to out/peers/runs/NAME/log.txt. Needs
Linux and Python 3.11 or 3.12.
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
from tpsrl.rl import synthetic_env as core


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What can be said after the name."""

    steps: int = config.option(40_000, "steps of experience that are timed", minimum=1)
    warm_up: int = config.option(4, "rollouts before them", minimum=1)
    variant: str = config.option("waiting", "what a step does: waiting, busy or none")
    seed: int = config.option(0, "of the environments' durations", minimum=0)
    folder: str = config.option("out/peers", "where libraries are installed and logs go")
    out: str = config.option("", "the JSON; FOLDER/NAME.json if not given")


def main(arguments: Sequence[str]) -> None:
    """Runs the peers one after the other and writes what was measured after each.

    Raises:
        UserError: there is no such peer or option.
        RunError: a peer failed.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, end="")
        for name, value, text in config.describe(Options):
            print(f"    {name}={value}: {text}")
        return
    name, options = arguments[0], config.load(Options, arguments[1:])
    if name not in (*PEERS, "all"):
        raise unknown("peer", name, (*PEERS, "all"))
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
    for each in PEERS if name == "all" else (name,):
        found = measure(each, settings, folder)
        peers.append(found)
        rate = found["samples_per_s"]
        line = f"mean {rate['mean']:.0f}, max {rate['max']:.0f} samples/s"
        print(f"{each}: {line} (load {found['load']:.1f})", flush=True)
        for note in found["notes"]:
            print(f"    {note}")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    # As an exception, so that what was started is ended.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        main(sys.argv[1:])
    except (UserError, RunError) as error:
        print(f"peers: error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
