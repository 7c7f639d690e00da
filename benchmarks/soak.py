"""Whether anything grows while experience is collected: memory, file descriptors, shared memory.

    python -m benchmarks.soak [STEPS] [COLLECTOR] [FAILURES]

16 synthetic environments that take no time, in 16 workers, and a learner. Prints a row every tenth
of the way: resident memory of the main process and of all workers, descriptors of the main process
and of all workers, pages of shared memory. With FAILURES so many workers are killed on the way. The
exit code is 1 if the last tenth has more than the third has, by more than 5%.
"""

import contextlib
import os
import random
import signal
import sys
from pathlib import Path

import torch

from tpsrl import config
from tpsrl.rl import collectors
from tpsrl.rl.policy import ActorCritic
from tpsrl.rl.ppo import PPO
from tpsrl.rl.rollout import Rollout
from tpsrl.rl.settings import TrainSettings
from tpsrl.rl.synthetic import SyntheticFactory
from tpsrl.rl.workers import Survival

NAMES = ("steps", "memory MiB", "workers MiB", "descriptors", "workers'", "shared MiB")
ROWS, SLACK = 10, 1.05


def look(workers: list[int]) -> list[float]:
    """Of this process and of its workers, in the order of `NAMES`."""
    own = os.getpid()
    resident = [status(pid, "VmRSS") - status(pid, "RssShmem") for pid in (own, *workers)]
    files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, *workers)]
    return [resident[0], sum(resident[1:]), files[0], sum(files[1:]), status(own, "RssShmem")]


def status(pid: int, name: str) -> float:
    """An entry of a process's status, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(name)


def main(steps: str = "100000", collector: str = "ver", failures: str = "0") -> int:
    """Collects, learns and looks."""
    torch.set_num_threads(1)
    settings = config.load_preset("train", "synthetic", TrainSettings)
    count, size = settings.num_envs, settings.num_envs * settings.num_steps
    made = collectors.make(
        collector, SyntheticFactory("none"), count, count, survival=Survival(max_failures=10**6)
    )
    with contextlib.closing(made):
        policy = ActorCritic(made.spec, settings.policy)
        ppo = PPO(policy, settings.ppo)
        rollouts = [
            Rollout(made.spec, count, size, policy.memory_size) for _ in range(made.rollouts)
        ]
        total = -(-int(steps) // size)
        kills = sorted(random.Random(0).sample(range(total), int(failures)))
        rows, lost = [], 0
        print(*(f"{name:>12}" for name in NAMES))
        for number in range(total):
            if number in kills:
                victim = random.choice(made._environments._workers)  # type: ignore[attr-defined]
                os.kill(victim.process.pid, signal.SIGKILL)
            looks = len(rows) < (number + 1) * ROWS // total
            collection = made.collect(policy, rollouts, number, ahead=not looks)
            lost += len(collection.losses)
            ppo.update(collection.rollout)
            if looks:
                made.snapshot()  # afterwards all workers live
                pids = [w.process.pid for w in made._environments._workers]  # type: ignore[attr-defined]
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
