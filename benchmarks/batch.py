"""Control steps per second of many homes stepped together, with and without depth.

    python -m benchmarks.batch [engine=warp] [envs=64,256,1024,4096] [minutes=10] [out=out/batch]

For each number of homes, measures physics alone, head depth alone at 64 x 64 and 128 x 128, and
both together; the time to create the homes, to reset them and for the first step (which compiles),
and the memory. Homes start in Tidy House episodes of the training apartments and get random
actions. Then trainings of Pick with the collector `device`, with depth at 64 x 64 ("depth") and
with a teacher's sensors ("teacher"): samples per second of collecting alone, and of collecting and
learning. Numbers of homes are measured in ascending order until the time is over or the memory is
full; the report says which. Writes `batch.json` and `batch.png` into `out`.
"""

import dataclasses
import functools
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

import tpsrl.sim
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from tpsrl import config
from tpsrl.errors import RunError, UserError, one_line
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime.figures import figure
from tpsrl.sim import datasets
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.slots import capacity_for

SIDES = (64, 128)
_PLAN = 32  # number of different actions per home
_STEPS = 8  # of a rollout
_TRAININGS: dict[str, dict[str, Any]] = {
    "depth": {"sensors": "fetch", "depth": 64},
    "teacher": {"sensors": "teacher", "settings": {"way": 6.0, "hand": 4.0}},
}


@dataclasses.dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of the benchmark."""

    engine: Literal["mujoco", "warp"] = config.option("warp", "simulation engine")
    envs: str = config.option("64,256,1024,4096", "numbers of homes")
    minutes: float = config.option(10.0, "time for all of it", minimum=0.01)
    objects: int = config.option(12, "objects of the episodes", minimum=5, maximum=30)
    episodes: int = config.option(16, "different episodes", minimum=1)
    out: str = config.option("out/batch", "folder for the report")

    def counts(self) -> list[int]:
        """Returns the numbers of homes in ascending order.

        Raises:
            UserError: an entry is not an integer above 0.
        """
        words = [word.strip() for word in self.envs.split(",")]
        if not all(word.isdigit() and int(word) > 0 for word in words):
            raise UserError(f"envs: must be integers >= 1 such as 64,256, got '{self.envs}'")
        return sorted(int(word) for word in words)


def main(arguments: list[str]) -> int:
    """Measures, prints a table and writes the report."""
    settings = config.load(BatchSettings, config.parse(arguments))
    settings.counts()
    begun = datasets.load("tidy_house", "train", settings.episodes, num_objects=settings.objects)
    report = measured(settings, begun)
    out = Path(settings.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "batch.json").write_text(json.dumps(report, indent=1) + "\n")
    drawn(report, out / "batch.png")
    print(f"wrote {out / 'batch.json'} and batch.png")
    return 0


def measured(settings: BatchSettings, begun: list[Episode]) -> dict[str, Any]:
    """Measures all numbers of homes; returns the report as JSON types."""
    end = time.monotonic() + 60.0 * settings.minutes
    rows: list[dict[str, Any]] = []
    counts = settings.counts()
    for place, count in enumerate(counts):
        left = end - time.monotonic()
        if left <= 0.0:
            rows.append({"envs": count, "left_out": "the time was over"})
            continue
        try:
            rows.append(_row(settings, begun, count, left / (len(counts) - place)))
        except (RunError, RuntimeError) as error:  # raised by torch and warp when memory is full
            rows.append({"envs": count, "left_out": one_line(str(error))})
        print("  ".join(f"{name} {_short(value)}" for name, value in rows[-1].items()), flush=True)
    return {
        "engine": settings.engine,
        "versions": tpsrl.sim.versions(settings.engine) | {"torch": torch.__version__},
        "machine": _machine(),
        "objects": settings.objects,
        "rows": rows,
    }


def _row(
    settings: BatchSettings, begun: list[Episode], count: int, seconds: float
) -> dict[str, Any]:
    """Measures `count` homes within about `seconds` seconds."""
    end, memory = time.monotonic() + 0.6 * seconds, _memory_mb()
    row: dict[str, Any] = {"envs": count}
    slots = capacity_for(settings.objects)
    row["make_s"], batch = _timed(
        lambda: tpsrl.sim.make_batch(settings.engine, num_envs=count, slots=slots)
    )
    episodes = [begun[home % len(begun)] for home in range(count)]
    row["reset_s"], _ = _timed(lambda: batch.reset(range(count), episodes))
    plan = _actions(count)
    row["first_step_s"], _ = _timed(lambda: batch.step(plan[0]))
    batch.check()
    kinds: dict[str, Callable[[int], object]] = {"physics": lambda n: batch.step(plan[n % _PLAN])}
    for side in SIDES:
        look = functools.partial(batch.depth, side, side)
        row[f"first_depth_{side}_s"], _ = _timed(look)
        kinds[f"depth_{side}"] = lambda _, look=look: look()
        kinds[f"both_{side}"] = lambda n, look=look: (
            batch.step(plan[n % _PLAN]),
            batch.state(),
            look(),
        )
    for place, (kind, once) in enumerate(kinds.items()):
        share = max(end - time.monotonic(), 0.0) / (len(kinds) - place)
        row[f"{kind}_per_s"] = count * _rate(once, share)
        batch.check()
    row["memory_mb"] = _memory_mb() - memory
    batch.close()
    for name in _TRAININGS:
        found = _training(settings, name, count, 0.2 * seconds)
        row |= {f"{name}_{kind}": rate for kind, rate in found.items()}
    return row


def _training(settings: BatchSettings, name: str, count: int, seconds: float) -> dict[str, float]:
    """Measures a training of Pick in `count` homes within about `seconds` seconds."""
    options = EnvOptions.of(
        "pick",
        num_objects=settings.objects,
        num_episodes=settings.episodes,
        engine=settings.engine,
        **_TRAININGS[name],
    )
    factory = TrainingVecEnvFactory(options, limit_ends=True, device_starts=settings.episodes)
    factory.prepare()
    preset = TrainSettings(
        num_envs=count,
        num_steps=_STEPS,
        collector="device",
        policy=PolicySettings(
            encoder="resnet18" if options.inputs.depth else "state",
            dtype="bfloat16" if torch.cuda.is_available() else "float32",
        ),
        ppo=PPOSettings(epochs=1, minibatches=4),
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = assemble(preset, factory, device=device)

    def collected(_: int) -> None:
        made.collector.collect(made.policy, made.rollouts)

    def learned(number: int) -> None:
        collected(number)
        made.ppo.update(made.rollouts[0])

    learned(0)  # compiles
    samples = count * _STEPS
    found = {
        "collect_per_s": samples * _rate(collected, 0.5 * seconds),
        "learn_per_s": samples * _rate(learned, 0.5 * seconds),
    }
    made.collector.close()
    return found


def _actions(count: int) -> torch.Tensor:
    """Returns random actions (_PLAN, count, 11) with an open gripper."""
    generator = torch.Generator().manual_seed(0)
    plan = 2.0 * torch.rand(_PLAN, count, act.SIZE, generator=generator) - 1.0
    plan[..., act.GRIP] = -1.0
    return plan.to("cuda") if torch.cuda.is_available() else plan


def _rate(once: Callable[[int], object], seconds: float) -> float:
    """Returns the calls per second of `once`, over `seconds` seconds and at least two calls."""
    _wait()
    begun, done = time.perf_counter(), 0
    while done < 2 or time.perf_counter() - begun < seconds:
        once(done)
        _wait()
        done += 1
    return done / (time.perf_counter() - begun)


def _timed(what: Callable[[], Any]) -> tuple[float, Any]:
    _wait()
    begun = time.perf_counter()
    result = what()
    _wait()
    return time.perf_counter() - begun, result


def _wait() -> None:
    """Waits until the device has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _memory_mb() -> float:
    """Returns the memory in use: on the GPU by all processes, otherwise by this process."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**20
    status = Path("/proc/self/status").read_text()
    (resident,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]) / 1024


def _machine() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, no GPU"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def drawn(report: dict[str, Any], path: Path) -> None:
    """Draws steps and images per second over the number of homes."""
    rows = [row for row in report["rows"] if "left_out" not in row]
    made = figure(figsize=(7, 4.5), layout="constrained")
    axes = made.add_subplot()
    kinds = [f"{kind}_{side}" for kind in ("depth", "both") for side in SIDES]
    trained = [f"{name}_{kind}" for name in _TRAININGS for kind in ("collect", "learn")]
    for name in ("physics", *kinds, *trained):
        axes.plot(
            [row["envs"] for row in rows],
            [row[f"{name}_per_s"] for row in rows],
            marker="o",
            label=name.replace("_", " "),
        )
    axes.set(xscale="log", yscale="log", xlabel="homes", ylabel="homes' steps or pictures per s")
    envs = [row["envs"] for row in rows]
    axes.set_xticks(envs, [str(count) for count in envs])
    axes.minorticks_off()
    axes.set_title(f"engine {report['engine']}, {report['machine']}")
    axes.legend()
    axes.grid(alpha=0.3)
    made.savefig(path, dpi=120)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
