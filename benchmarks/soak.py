"""Growth of memory, file descriptors and shared memory while experience is collected.

    python -m benchmarks.soak [STEPS] [COLLECTOR] [FAILURES]

Uses 16 synthetic environments whose steps take no time, in 16 workers, and a learner. Prints a row
every tenth of the steps: steps, resident memory of the main process and of all workers, descriptors
of the main process and of all workers, pages of shared memory. With FAILURES, that many workers are
killed during the run. The exit code is 1 if the last row exceeds the third by more than 5% plus 1
(MiB or descriptor).

oneDNN caches the last 1,024 compiled kernels, one per shape. As sequences keep having new shapes,
the cache takes 50 to 100 MiB until it is full. Here it is limited to 64 kernels, so that its growth
does not hide a leak; the environment variable ONEDNN_PRIMITIVE_CACHE_CAPACITY sets the limit.
"""

import contextlib
import dataclasses
import os
import random
import signal
import sys
from pathlib import Path

import torch

from tpsrl import config
from tpsrl.rl.bench.synthetic import SyntheticVecEnvFactory
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import machine

NAMES = ("steps", "memory MiB", "workers MiB", "descriptors", "workers'", "shared MiB")
ROWS, SLACK = 10, 1.05


def look(workers: list[int]) -> list[float]:
    """Returns the quantities `NAMES` of this process and its workers."""
    own = os.getpid()
    resident = [status(pid, "VmRSS") - status(pid, "RssShmem") for pid in (own, *workers)]
    files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, *workers)]
    return [resident[0], sum(resident[1:]), files[0], sum(files[1:]), status(own, "RssShmem")]


def status(pid: int, name: str) -> float:
    """Returns an entry of a process's status, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(name)


def main(steps: str = "100000", collector: str = "ver", failures: str = "0") -> int:
    """Collects, learns and observes."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # before the first kernel
    torch.set_num_threads(1)
    machine.keep_memory()  # as a training does
    settings = config.load_preset("train", "synthetic", TrainSettings)
    count, size = settings.num_envs, settings.num_envs * settings.num_steps
    settings = dataclasses.replace(settings, collector=collector)
    tolerance = FaultTolerance(max_failures=10**6)
    made = assemble(settings, SyntheticVecEnvFactory("none"), count, tolerance=tolerance)
    with contextlib.closing(made.collector):
        group = made.collector.pool.group  # type: ignore[attr-defined]
        total = -(-int(steps) // size)
        kills = sorted(random.Random(0).sample(range(total * 9 // 10), int(failures)))
        rows, lost = [], 0
        print(*(f"{name:>12}" for name in NAMES))
        for number in range(total):
            if number in kills:
                os.kill(random.choice(group.workers).process.pid, signal.SIGKILL)
            looks = len(rows) < (number + 1) * ROWS // total
            collection = made.collector.collect(made.policy, made.rollouts, number, not looks)
            lost += len(collection.lost)
            made.ppo.update(collection.rollout, version=number)
            if looks:
                made.collector.snapshot()  # afterwards all workers are alive
                pids = [worker.process.pid for worker in group.workers]
                rows.append(look(pids))
                print(f"{(number + 1) * size:12,}", *(f"{v:12,.1f}" for v in rows[-1]), flush=True)
        print(f"{lost} workers were replaced")
    grown = [
        name
        for name, before, after in zip(NAMES[1:], rows[2], rows[-1], strict=True)
        if after > SLACK * before + 1.0
    ]
    print(f"grew: {', '.join(grown)}" if grown else "nothing grew")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
