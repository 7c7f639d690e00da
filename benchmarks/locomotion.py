"""Ant and humanoid: tpsrl's PPO compared with stable-baselines3's in the same environments.

    pip install -c constraints.txt -e '.[reference]'
    python -m benchmarks.locomotion [task=ant] [steps=4000000] [num_envs=256] [seed=0] [threads=0]
        [out=out/locomotion_reference]

Both libraries get the same environments (`tpsrl bench locomotion`), seed, steps, rollouts of 32
steps per environment, epochs, mini-batches, clip range, discount and layer widths, and both
normalise observations. tpsrl adapts its learning rate to the desired KL divergence, as in Liang et
al. 2018; stable-baselines3 keeps tpsrl's initial rate. Existing results are not trained again.

Writes curves.json and curves.png, and prints the return over the last 100 episodes as a table in
Markdown.
"""

import collections
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch

from benchmarks.variants import run_tpsrl
from tpsrl import config
from tpsrl.commands.bench_locomotion import BenchLocomotionSettings
from tpsrl.errors import UserError
from tpsrl.rl.bench.running_env import RunningVecEnv, RunningVecEnvFactory
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import figures, machine

EPISODES = 100  # number of episodes over which returns are averaged
_ROWS = 8  # of the table

Curve = list[tuple[int, float, float]]  # samples, minutes, return


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the comparison."""

    task: Literal["ant", "humanoid"] = config.option("ant", "what runs")
    steps: int = config.option(4_000_000, "samples of each library", minimum=1)
    num_envs: int = config.option(256, "environments", minimum=2)
    seed: int = config.option(0, "of weights, actions and environments", minimum=0)
    threads: int = config.option(0, "of simulation and network; 0: all cores", minimum=0)
    out: str = config.option("out/locomotion_reference", "folder of both")


def ours(settings: Settings, folder: Path) -> Curve:
    """Returns the learning curve of `tpsrl bench locomotion`."""
    task, found = settings.task, folder / "tpsrl" / "locomotion.json"
    if not found.exists():
        run_tpsrl(
            "bench", "locomotion", f"tasks={task}", f"{task}.steps={settings.steps}",
            f"{task}.num_envs={settings.num_envs}", f"seed={settings.seed}",
            f"threads={settings.threads}", f"out={found.parent}", processes=0,
        )  # fmt: skip
    curve = json.loads(found.read_text())["tasks"][task]["curve"]
    return [(point["steps"], point["minutes"], point["return"]) for point in curve]


def theirs(settings: Settings, folder: Path) -> Curve:
    """Returns the learning curve of stable-baselines3's PPO."""
    found = folder / "stable_baselines3.json"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(json.dumps(_train_theirs(settings)))
    return [(point[0], point[1], point[2]) for point in json.loads(found.read_text())]


def _train_theirs(settings: Settings) -> Curve:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    preset: TrainSettings = getattr(config.load(BenchLocomotionSettings, {}), settings.task)
    threads = settings.threads or machine.cores()
    torch.set_num_threads(threads)
    factory = RunningVecEnvFactory(settings.task, settings.seed, threads)
    env = VecNormalize(adapter(factory(range(settings.num_envs))), norm_reward=False)
    width, learner = preset.policy.state_width, preset.ppo
    layers = [width, width // 2, width // 4]
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=learner.learning_rate,
        n_steps=preset.num_steps,
        batch_size=settings.num_envs * preset.num_steps // learner.minibatches,
        n_epochs=learner.epochs,
        gamma=learner.gamma,
        gae_lambda=learner.gae_lambda,
        clip_range=learner.clip,
        ent_coef=0.0,
        policy_kwargs={
            "net_arch": {"pi": layers, "vf": layers},
            "activation_fn": torch.nn.SELU,
        },
        seed=settings.seed,
        device="cpu",
    )
    curve: Curve = []
    begun = time.monotonic()

    class Noted(BaseCallback):
        """Records the mean return after each rollout."""

        def __init__(self) -> None:
            super().__init__()
            self.last: collections.deque[float] = collections.deque(maxlen=EPISODES)

        def _on_step(self) -> bool:
            self.last.extend(info["total"] for info in self.locals["infos"] if "total" in info)
            return True

        def _on_rollout_end(self) -> None:
            if self.last:
                minutes = (time.monotonic() - begun) / 60
                curve.append((self.num_timesteps, minutes, float(np.mean(self.last))))

    model.learn(settings.steps, callback=Noted())
    return curve


def adapter(envs: RunningVecEnv) -> Any:
    """Wraps environments for stable-baselines3; `infos` have the `total` of ended episodes."""
    from stable_baselines3.common.vec_env import VecEnv

    class Running(VecEnv):
        """Vectorised environments, all stepped in one call."""

        def __init__(self) -> None:
            (size,) = envs.spec.observations["state"]
            shown = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
            acts = gymnasium.spaces.Box(-1.0, 1.0, (envs.spec.action_size,), np.float32)
            super().__init__(envs.num_envs, shown, acts)
            self._every = list(range(envs.num_envs))

        def reset(self) -> np.ndarray:
            return envs.reset(self._every)["state"]

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            done = envs.step(self._every, self._actions)
            infos: list[dict[str, Any]] = [{} for _ in self._every]
            for episode in done.episodes:
                infos[episode.env]["total"] = episode.reward
            cut = np.flatnonzero(done.truncated).tolist()
            for row, env in enumerate(cut):
                assert done.final is not None
                infos[env]["terminal_observation"] = done.final["state"][row]
                infos[env]["TimeLimit.truncated"] = True
            over = done.terminated | done.truncated
            return done.observation["state"], done.reward, over, infos

        def close(self) -> None:
            envs.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *args: Any, **keywords: Any) -> list[Any]:
            raise NotImplementedError

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False for _ in self._get_indices(indices)]

    return Running()


def table(curves: dict[str, Curve], steps: int) -> str:
    """Returns a Markdown table of returns at equal samples, with minutes."""
    lines = ["| million samples | " + " | ".join(curves) + " |", "|---|" + "---|" * len(curves)]
    for share in np.linspace(1.0 / _ROWS, 1.0, _ROWS):
        row = [f"{share * steps / 1e6:.1f}"]
        for curve in curves.values():
            seen = [point for point in curve if point[0] <= share * steps + 1]
            row.append(f"{seen[-1][2]:,.0f} ({seen[-1][1]:.1f} min)" if seen else "")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def draw(curves: dict[str, Curve], path: Path, title: str) -> None:
    """Draws return over samples and over minutes."""
    figure = figures.figure(figsize=(9.0, 3.4), layout="constrained", dpi=110)
    for place, (axes, label) in enumerate(
        zip(figure.subplots(1, 2), ("million samples", "minutes"), strict=True)
    ):
        for name, curve in curves.items():
            x = [point[place] / (1e6 if place == 0 else 1.0) for point in curve]
            axes.plot(x, [point[2] for point in curve], label=name)
        axes.set(xlabel=label, ylabel=f"return, {EPISODES} episodes", title=title)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path)


def main(words: Sequence[str]) -> int:
    """Trains missing curves and prints the table."""
    try:
        settings = config.load(Settings, config.parse(words))
    except UserError as error:
        print(f"benchmarks.locomotion: {error}", file=sys.stderr)
        return 2
    folder = Path(settings.out)
    curves = {"tpsrl": ours(settings, folder), "stable-baselines3": theirs(settings, folder)}
    (folder / "curves.json").write_text(json.dumps(curves))
    draw(curves, folder / "curves.png", settings.task)
    print(table(curves, settings.steps))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
