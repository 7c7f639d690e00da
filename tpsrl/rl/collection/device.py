"""The collector `device`: environments, policy and rollout on one device.

All environments take every step, as with `batch`, but nothing is copied to the processor within a
rollout: observations, rewards and ends are written into the rollout as tensors, and ended episodes
restart on the device. The processor only launches the work, and waits for it once a rollout.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection.accounting import WAITS
from tpsrl.rl.collection.collector import (
    NO_STEPS,
    NOT_FINITE,
    OTHER_COLLECTOR,
    Collection,
    check_rollouts,
)
from tpsrl.rl.collection.device_rollout import DeviceRollout
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.settings import DEVICE, CollectorSettings
from tpsrl.rl.envs import device_env
from tpsrl.rl.envs.device_env import DeviceEnv, DeviceObservation
from tpsrl.rl.envs.pool import PoolSnapshot
from tpsrl.rl.envs.stopwatch import Stopwatch
from tpsrl.rl.envs.streams import Stream, generator
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.acting import ActingPolicy
from tpsrl.rl.policy.actor_critic import VISION

_RESTARTED = f"collector={DEVICE} does not save environments: all episodes restart"


class DeviceCollector:
    """Fills rollouts on a device; has the interface of `tpsrl.rl.collection.collector.Collector`.

    Exploration noise comes from one generator for all environments.

    Args:
        envs: all environments
        settings: settings of the collector; every batch holds all environments
        say: receives messages
    """

    rollouts = 1
    rollout_type: type[Rollout] = DeviceRollout
    running = False

    def __init__(
        self,
        envs: DeviceEnv,
        settings: CollectorSettings,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._envs, self._say = envs, say
        self.num_envs, self.spec = envs.num_envs, envs.spec
        self._device = torch.device(settings.device)
        seeds = generator(Stream.NOISE, settings.seed, settings.first_env)
        self._random = device_env.random_on(self._device, int(seeds.integers(2**62)))
        self._correlation = settings.noise_correlation
        self._last_noise: torch.Tensor | None = None
        self._shown: DeviceObservation | None = None
        self._all, self._steps = np.arange(self.num_envs), [NO_STEPS]
        self._inference, self._copying, self._simulation = (Stopwatch() for _ in range(3))

    def collect(
        self,
        policy: ActingPolicy,
        rollouts: Sequence[Rollout],
        version: int = 0,
        ahead: bool = True,
    ) -> Collection:
        """See `tpsrl.rl.collection.collector.Collector.collect`; `ahead` has no effect.

        `Collection.seconds` are those in which the processor launched work, and as "waiting" those
        in which it waited for the device. The duration of a step is that of launching it.
        """
        check_rollouts(rollouts, self.rollouts, self.num_envs, DEVICE)
        (rollout,) = rollouts
        assert isinstance(rollout, DeviceRollout)
        begun, before = time.perf_counter(), self._spent()
        rollout.begin()
        self._steps = [NO_STEPS]
        if self._shown is None:
            with self._simulation, torch.inference_mode():
                self._shown = self._envs.reset()
        while not rollout.full:
            self._step(policy, rollout, version)
        with self._inference, torch.inference_mode():
            value = policy.act(self._shown, *rollout.next_inputs()).value
        launched = time.perf_counter()
        rollout.fetch(value)
        wrong = ~torch.isfinite(rollout.action).all(1)
        if bool(wrong.any()):
            seen = rollout.observation["state"][wrong][0]
            if not bool(torch.isfinite(seen).all()):
                self._envs.episodes()  # raises the engine's error
            raise RunError(NOT_FINITE)
        episodes = self._envs.episodes()
        now = time.perf_counter()
        seconds = {name: s - before[name] for name, s in self._spent().items()}
        seconds |= {"rendering": 0.0, "resets": 0.0, "waiting": now - launched}
        seconds["other"] = now - begun - sum(seconds.values())
        env, took, when = (np.concatenate(parts) for parts in zip(*self._steps, strict=True))
        waits = dict.fromkeys(WAITS, 0.0)
        return Collection(rollout, rollout.size, episodes, seconds, waits, env, took, when, [])

    def _step(self, policy: ActingPolicy, rollout: DeviceRollout, version: int) -> None:
        """Adds a step of all environments to the rollout."""
        shown = self._shown
        assert shown is not None
        with torch.inference_mode():
            with self._inference:
                step = policy.act(shown, *rollout.next_inputs())
                noise = self._noise()
                action = gaussian.displaced(step.mean, step.std, policy.mask, noise)
                log_prob = policy.log_prob(step.mean, step.std, action, noise)
            assert step.memory is not None
            with self._copying:
                rollout.add_step(
                    shown if step.vision is None else {**shown, VISION: step.vision},
                    action=action,
                    log_prob=log_prob,
                    value=step.value,
                    next_memory=step.memory,
                    version=version,
                )
            before = self._simulation.seconds
            with self._simulation:
                done = self._envs.step(action.nan_to_num())  # refused at the rollout's end
            self._note_step(self._simulation.seconds - before)
            final_value = None
            if done.final is not None:
                with self._inference:
                    goes_on = torch.zeros_like(done.terminated)
                    final_value = policy.act(done.final, action, step.memory, goes_on).value
            with self._copying:
                rollout.complete_step(done.reward, done.terminated, done.truncated, final_value)
        self._shown = done.observation

    def _note_step(self, seconds: float) -> None:
        took, now = (np.full(self.num_envs, s) for s in (seconds, time.monotonic()))
        self._steps.append((self._all, took, now))

    def _noise(self) -> torch.Tensor:
        """Returns the next standard normal noise (n, A); see `tpsrl.rl.collection.noise`."""
        shape = (self.num_envs, self.spec.action_size)
        drawn = torch.randn(shape, generator=self._random, device=self._device)
        if self._last_noise is not None and self._correlation:
            share = (1.0 - self._correlation**2) ** 0.5
            drawn = self._correlation * self._last_noise + share * drawn
        self._last_noise = drawn
        return drawn

    def _spent(self) -> dict[str, float]:
        """Returns the seconds so far by cause."""
        return {
            "simulation": self._simulation.seconds,
            "inference": self._inference.seconds,
            "copying": self._copying.seconds,
        }

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`."""
        self._envs.weigh(weights)

    def snapshot(self) -> PoolSnapshot:
        """Returns the state of the random generators."""
        arrays, note = self._envs.snapshot()
        named = {f"draws/{name}": values for name, values in arrays.items()}
        return {**named, "noise": self._random.get_state().cpu().numpy()}, {"draws": note}

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Continues the random generators from a snapshot; all episodes restart.

        Raises:
            UserError: the snapshot is of another collector, or damaged.
        """
        if "noise" not in arrays:
            raise UserError(OTHER_COLLECTOR)
        draws = {
            name.removeprefix("draws/"): values
            for name, values in arrays.items()
            if name.startswith("draws/")
        }
        self._envs.restore(draws, note.get("draws", {}))
        device_env.set_random(self._random, arrays["noise"])
        self._shown = self._last_noise = None
        self._say(_RESTARTED)

    def close(self) -> None:
        """Frees the environments; safe to call twice."""
        self._envs.close()
