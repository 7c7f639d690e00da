"""A deterministic `VecEnv` for tests of workers and collectors, with selectable faults.

The state of an environment is its step counter, its episode number, its own number and a random
number of its generator. The reward is a function of state and action. Episode e of environment i
lasts 3 + (i + e) % 4 steps, and is truncated if i + e is even.
"""

import dataclasses
import os
import signal
import time
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch

SPEC = EnvSpec({"state": (4,), "depth": (2, 3)}, (True, True, False))


@dataclasses.dataclass(frozen=True)
class ToyVecEnvFactory:
    """Factory of toy environments with an optional fault.

    By default the fault is in step number `when` of environment `where`.

    Attributes:
        trouble: kind of fault; "" for none
        where: number of the environment, over all workers
        when: number of the step
        episode: if >= 0, the fault is in the second step of this episode of any environment
        failures: number of processes in a row that have the fault
        at: command with the fault: step, reset, snapshot, restore or launch
        order: if given, environment i starts from the places i, i + `stride`, ... of this sequence
        stride: see `order`
        bad: starts of `order` with the fault, in the second step or, by `at`, the reset
        ballast: bytes added to the record of an episode and to snapshots
        fuse: path of a file; only the process that creates it has the fault, at its launch
    """

    trouble: str = ""
    where: int = 0
    when: int = 5
    episode: int = -1
    failures: int = 1
    at: str = "step"
    order: tuple[int, ...] = ()
    stride: int = 1
    bad: tuple[int, ...] = ()
    ballast: int = 0
    fuse: str = ""

    def __call__(self, env_ids: Sequence[int]) -> "ToyVecEnv":
        if self.trouble == "refuse":
            raise UserError("toy: no such thing")
        made = ToyVecEnv(self, env_ids)
        if not self.fuse or (self.where in env_ids and self._lights_fuse()):
            made.fail_at("launch", range(len(env_ids)))
        return made

    def _lights_fuse(self) -> bool:
        try:
            with open(self.fuse, "x"):
                return True
        except FileExistsError:
            return False


class ToyVecEnv:
    def __init__(self, factory: ToyVecEnvFactory, env_ids: Sequence[int]) -> None:
        self._factory, self.spec, self.num_envs = factory, SPEC, len(env_ids)
        self._names = np.array(env_ids)
        self._rngs = [np.random.default_rng((7, env)) for env in env_ids]
        self._counter = np.zeros((self.num_envs, 4))  # steps, episode, random number, reward
        self._counter[:, 1] = -1
        self._total = self._restarts = 0
        self._avoided: frozenset[int] = frozenset()

    @property
    def seconds(self) -> dict[str, float]:
        return {}

    def reset(self, env_ids: Sequence[int]) -> Observation:
        self.fail_at("reset", env_ids)
        for env in env_ids:
            number = self._counter[env, 1] + 1
            while number in self._avoided:
                number += 1
            self._counter[env] = 0, number, self._rngs[env].random(), 0
            if self._factory.at == "reset" and self.start_index(env) in self._factory.bad:
                self._fail()
        return self.observe(env_ids)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        self._total += 1
        self._trouble(env_ids)
        rows = np.array(env_ids)
        self._counter[rows, 0] += 1
        reward = self._counter[rows, 2] + actions[:, 0] * self._counter[rows, 0]
        self._counter[rows, 3] += reward
        parity = self._names[rows] + self._counter[rows, 1]
        over = self._counter[rows, 0] >= 3 + parity % 4
        truncated = over & (parity % 2 == 0)
        shown = self.observe(env_ids)
        final = {n: v[truncated] for n, v in shown.items()} if truncated.any() else None
        episodes = [self._episode(env_ids[row]) for row in np.flatnonzero(over)]
        if over.any():
            for name, values in self.reset(rows[over].tolist()).items():
                shown[name][over] = values
        reward = reward.astype(np.float32)
        reward[self._spoilt] = np.nan
        return StepBatch(shown, reward, over & ~truncated, truncated, final, episodes)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        rows = np.array(env_ids)
        state = np.column_stack([self._counter[rows, :3], self._names[rows]]).astype(np.float32)
        return {"state": state, "depth": np.repeat(state[:, :2], 3, 1).reshape(-1, 2, 3)}

    def start_index(self, env_id: int) -> int:
        number, order = int(self._counter[env_id, 1]), self._factory.order
        if not order:
            return number
        return order[(int(self._names[env_id]) + self._factory.stride * number) % len(order)]

    def reseed(self, restarts: int) -> None:
        self._restarts = restarts
        self._rngs = [np.random.default_rng((7, env, restarts)) for env in self._names.tolist()]

    def avoid(self, starts: Sequence[int]) -> None:
        self._avoided = frozenset(starts)

    def weigh(self, weights: np.ndarray) -> None:
        self._weights = weights

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        self.fail_at("snapshot", [env_id])
        state = self._rngs[env_id].bit_generator.state
        ballast = np.zeros(self._factory.ballast, np.uint8)
        return {"counter": self._counter[env_id].copy(), "ballast": ballast}, {"rng": state}

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        self.fail_at("restore", [env_id])
        if "counter" not in arrays:
            raise UserError("toy: not a snapshot of mine")
        self._counter[env_id] = arrays["counter"]
        self._rngs[env_id].bit_generator.state = note["rng"]

    def close(self) -> None:
        pass

    def _episode(self, env: int) -> EpisodeStats:
        steps, _, _, reward = self._counter[env]
        name, start = int(self._names[env]), self.start_index(env)
        terms = {"x" * self._factory.ballast: 0.0} if self._factory.ballast else {}
        return EpisodeStats(name, start, int(steps), float(reward), False, "end", terms)

    def fail_at(self, command: str, env_ids: Sequence[int]) -> None:
        """Fails if environment `where` has its fault at this command."""
        factory = self._factory
        here = not factory.order and factory.where in self._names[list(env_ids)]
        if here and factory.at == command and self._restarts < factory.failures:
            self._fail()

    def _trouble(self, env_ids: Sequence[int]) -> None:
        factory, rows = self._factory, np.array(env_ids)
        self._spoilt = np.zeros(len(rows), bool)
        if not factory.trouble or factory.at != "step" or self._restarts >= factory.failures:
            return
        if factory.order:
            bad = np.isin([self.start_index(env) for env in env_ids], factory.bad)
            here = bad & (self._counter[rows, 0] == 1)
        elif factory.episode >= 0:
            here = (self._counter[rows, 1] == factory.episode) & (self._counter[rows, 0] == 1)
        else:
            here = (self._names[rows] == factory.where) & (self._total >= factory.when)
        if not here.any():
            return
        if factory.trouble == "nan":
            self._spoilt = here
            return
        self._fail()

    def _fail(self) -> None:
        if self._factory.trouble == "raise":
            raise ValueError(f"environment {self._factory.where} is on fire")
        if self._factory.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)
