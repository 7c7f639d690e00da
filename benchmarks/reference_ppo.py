"""tpsrl's PPO compared with stable-baselines3's, and its recurrent PPO with sb3-contrib's.

    pip install -c constraints.txt -e '.[reference]'
    python -m benchmarks.reference_ppo [SEEDS] [OUT.json] [LEARNER ...]

Learners are "tpsrl" (collector `sync`), "tpsrl overlap", which learns from rollouts of the policy
before the last update, and "stable-baselines3"; by default all.

Tasks, seeds, steps, hyper-parameters and network widths are the same. "pendulum" is Pendulum-v1.
"hidden" is InvertedPendulum-v5 without velocities, so that the policy must remember the pole's
earlier positions. The result of a run is the mean return of 20 episodes under the mean action after
the last step, from the same 20 initial states for all learners.
"""

import dataclasses
import functools
import json
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import RescaleAction, TransformObservation

from benchmarks.gym_vec_env import GymVecEnvFactory
from tpsrl.rl.collection import collectors
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.settings import CollectorSettings
from tpsrl.rl.learning.ppo import PPO
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings

EPISODES, FIRST_SEED = 20, 10_000
WIDTH = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """An environment and its training settings; `shown` selects the observed columns."""

    env: str
    recurrent: bool
    steps: int
    num_envs: int
    num_steps: int
    batch: int
    rate: float
    gamma: float
    shown: tuple[int, ...] | None = None

    def make(self) -> gymnasium.Env:
        """Creates the environment, with actions in [-1, 1]."""
        env = RescaleAction(gymnasium.make(self.env), np.float32(-1), np.float32(1))
        if self.shown is None:
            return env
        columns = list(self.shown)
        space = env.observation_space
        seen = gymnasium.spaces.Box(space.low[columns], space.high[columns], dtype=space.dtype)
        return TransformObservation(env, lambda values: values[columns], seen)


TASKS = {
    "pendulum": Task("Pendulum-v1", False, 102_400, 4, 1024, 64, 1e-3, 0.9),
    "hidden": Task("InvertedPendulum-v5", True, 102_400, 8, 128, 128, 3e-4, 0.99, (0, 1)),
}
EPOCHS, CLIP, LAMBDA, GRAD, VALUE = 10, 0.2, 0.95, 0.5, 0.5


def ours(task: Task, seed: int, name: str = "sync") -> tuple[list[float], float]:
    """Trains tpsrl's PPO with the collector `name`.

    Returns:
        Returns of the final policy's episodes, and samples per second.
    """
    torch.manual_seed(seed)
    factory = GymVecEnvFactory(task.make, seed)
    collector = collectors.make(CollectorSettings(name, task.num_envs, seed=seed), factory)
    policy = ActorCritic(
        collector.spec,
        PolicySettings(
            encoder="state",
            state_width=WIDTH,
            state_layers=1 if task.recurrent else 2,
            lstm_layers=1 if task.recurrent else 0,
            lstm_width=WIDTH,
            separate_value=True,
            squash_mean=False,
            initial_std=1.0,
        ),
    )
    size = task.num_envs * task.num_steps
    settings = PPOSettings(
        learning_rate=task.rate,
        schedule="constant",
        epochs=EPOCHS,
        minibatches=size // task.batch,
        gamma=task.gamma,
        gae_lambda=LAMBDA,
        clip=CLIP,
        value_coef=2 * VALUE,  # tpsrl's value loss is half the squared error
        max_grad_norm=GRAD,
        normalise_advantage=True,
        entropy_coef=0.0,
    )
    learner = PPO(policy, settings, seed)
    made = [
        Rollout(collector.spec, task.num_envs, size, policy.memory_size)
        for _ in range(collector.rollouts)
    ]
    begun, updates = time.perf_counter(), task.steps // size
    for update in range(updates):
        collection = collector.collect(policy, made, update, ahead=update + 1 < updates)
        learner.update(collection.rollout, version=update)
    rate = task.steps / (time.perf_counter() - begun)
    collector.close()
    memory, previous, first = policy.initial_memory(1), torch.zeros(1, 1), torch.ones(1)

    def act(observation: np.ndarray, begins: bool) -> np.ndarray:
        nonlocal memory, previous
        state = {"state": torch.as_tensor(observation, dtype=torch.float32)[None]}
        with torch.inference_mode():
            step = policy.act(state, previous, memory, first.bool() & begins)
        assert step.memory is not None
        memory, previous = step.memory, step.mean
        return np.clip(step.mean[0].numpy(), -1.0, 1.0)

    return evaluate(task, act), rate


def reference(task: Task, seed: int) -> tuple[list[float], float]:
    """Trains stable-baselines3's or sb3-contrib's PPO; returns the same as `ours`."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import PPO as PlainPPO
    from stable_baselines3.common.env_util import make_vec_env

    environments = make_vec_env(task.make, task.num_envs, seed=seed)
    shared = {
        "learning_rate": task.rate,
        "n_steps": task.num_steps,
        "batch_size": task.batch,
        "n_epochs": EPOCHS,
        "gamma": task.gamma,
        "gae_lambda": LAMBDA,
        "clip_range": CLIP,
        "ent_coef": 0.0,
        "vf_coef": VALUE,
        "max_grad_norm": GRAD,
        "seed": seed,
        "device": "cpu",
    }
    if task.recurrent:
        network = {"lstm_hidden_size": WIDTH, "net_arch": [WIDTH]}
        model = RecurrentPPO("MlpLstmPolicy", environments, policy_kwargs=network, **shared)
    else:
        network = {"net_arch": [WIDTH, WIDTH]}
        model = PlainPPO("MlpPolicy", environments, policy_kwargs=network, **shared)
    begun = time.perf_counter()
    model.learn(task.steps)
    rate = task.steps / (time.perf_counter() - begun)
    state = None

    def act(observation: np.ndarray, begins: bool) -> np.ndarray:
        nonlocal state
        start = np.array([begins])
        action, state = model.predict(observation[None], state, start, deterministic=True)
        return np.clip(action[0], -1.0, 1.0)

    return evaluate(task, act), rate


def evaluate(task: Task, act) -> list[float]:
    """Runs evaluation episodes, from initial states that are the same for all learners.

    Returns:
        Sum of rewards of each episode.
    """
    env, returns = task.make(), []
    for seed in range(FIRST_SEED, FIRST_SEED + EPISODES):
        observation, _ = env.reset(seed=seed)
        total, over, begins = 0.0, False, True
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation, begins))
            total, over, begins = total + float(reward), terminated or truncated, False
        returns.append(total)
    return returns


def main(seeds: int = 3, out: str = "out/bench/reference_ppo.json", *names: str) -> None:
    """Runs the learners, by default all, and prints a table in Markdown."""
    torch.set_num_threads(1)
    known = {
        "tpsrl": ours,
        "tpsrl overlap": functools.partial(ours, name="overlap"),
        "stable-baselines3": reference,
    }
    libraries = {name: known[name] for name in names or known}
    rows = []
    print("| task | library | return of each seed | mean | samples/s |")
    print("|---|---|---|---|---|")
    for name, task in TASKS.items():
        for library, run in libraries.items():
            results = [run(task, seed) for seed in range(seeds)]
            means = [float(np.mean(returns)) for returns, _ in results]
            rates = [rate for _, rate in results]
            kind = f"{library}, recurrent" if task.recurrent else library
            each = ", ".join(f"{mean:.0f}" for mean in means)
            line = f"{each} | {np.mean(means):.0f} | {np.mean(rates):.0f}"
            print(f"| {name} | {kind} | {line} |", flush=True)
            rows.append({"task": name, "library": library, "returns": means, "rates": rates})
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
