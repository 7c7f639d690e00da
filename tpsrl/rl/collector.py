"""Collectors: how experience gets from environments into a rollout.

`sync` is DD-PPO's way: all environments step together, their next actions are chosen in one batch.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from tpsrl.errors import RunError, UserError, unknown
from tpsrl.rl import gaussian
from tpsrl.rl.envs import EnvSpec, Episode, HomesFactory, Json
from tpsrl.rl.policy import ActorCritic
from tpsrl.rl.rollout import Rollout
from tpsrl.rl.serial import CAUSES, Environments, Serial
from tpsrl.rl.stopwatch import Stopwatch
from tpsrl.rl.workers import Workers

Snapshot = tuple[dict[str, np.ndarray], Json]


@dataclasses.dataclass(slots=True)
class Collection:
    """What was seen while a rollout was collected.

    `seconds` add up to the time it took: simulation, rendering and resets as the mean of the
    environments' processes, inference, copying, waiting (for the slowest process, beyond that
    mean), other.
    """

    steps: int
    episodes: list[Episode]
    seconds: dict[str, float]


class Collector(Protocol):
    """Fills rollouts with the steps of environments that it owns."""

    num_envs: int
    spec: EnvSpec

    def collect(self, policy: ActorCritic, rollout: Rollout, version: int = 0) -> Collection:
        """Collects the next rollout, from `begin` to `finish`, with a policy of that version.

        Raises:
            RunError: an environment failed or died, or an action is not finite; names the cause.
        """
        ...

    def snapshot(self) -> Snapshot:
        """All that the next `collect` depends on beside policy and rollout: arrays, JSON types.

        To be taken between two rollouts.
        """
        ...

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Goes on exactly where a snapshot was taken, in whatever processes.

        Raises:
            UserError: the snapshot is of another collector, other environments, or damaged.
        """
        ...

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        ...


class Sync:
    """Lock-step: no environment acts before the last one has answered.

    Args:
        environments: all of them
        seed: of the actions that are drawn
        device: of the policy
    """

    def __init__(
        self, environments: Environments, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self._environments = environments
        self.num_envs, self.spec = environments.num_envs, environments.spec
        self._all = np.arange(self.num_envs)
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._begun = False
        self._watches = {name: Stopwatch() for name in ("inference", "copying", "receiving")}

    def collect(self, policy: ActorCritic, rollout: Rollout, version: int = 0) -> Collection:
        """See `Collector.collect`."""
        if rollout.size % self.num_envs or rollout.num_envs != self.num_envs:
            raise ValueError(f"a rollout of {rollout.size} steps of {self.num_envs} environments")
        before, begun = self._seconds(), time.perf_counter()
        self._begin()
        rollout.begin()
        episodes: list[Episode] = []
        while not rollout.full:
            self._act(policy, rollout, version)
            with self._watches["receiving"]:
                done = self._environments.receive()
            with self._watches["copying"]:
                answer = (done.reward, done.terminated, done.truncated, done.final)
                rollout.complete(self._all, *answer)
            episodes += done.episodes
        with self._watches["inference"]:
            shown = self._environments.observation
            rollout.finish(policy, lambda envs: {name: v[envs] for name, v in shown.items()})
        spent = {cause: s - before[cause] for cause, s in self._seconds().items()}
        return Collection(rollout.size, episodes, _breakdown(spent, time.perf_counter() - begun))

    def _act(self, policy: ActorCritic, rollout: Rollout, version: int) -> None:
        """Chooses the next actions and starts the step."""
        with self._watches["copying"]:
            shown = {
                name: torch.from_numpy(values).to(self._device)
                for name, values in self._environments.observation.items()
            }
        with self._watches["inference"], torch.no_grad():
            step = policy.act(shown, *rollout.inputs(self._all))
            action = gaussian.sample(step.mean, step.std, policy.mask, self._generator)
            log_prob = gaussian.log_prob(step.mean, step.std, action, policy.mask)
            chosen = action.cpu().numpy()
        if not np.isfinite(chosen).all():
            raise RunError("policy: an action is not finite; is the learning rate too high?")
        assert step.memory is not None
        with self._watches["copying"]:
            rollout.add(
                self._all,
                shown,
                action=action,
                log_prob=log_prob,
                value=step.value,
                next_memory=step.memory,
                version=version,
            )
        with self._watches["receiving"]:  # whom it wakes may take over this core
            self._environments.send(chosen)

    def _begin(self) -> None:
        if not self._begun:
            with self._watches["receiving"]:
                self._environments.reset()
            self._begun = True

    def _seconds(self) -> dict[str, float]:
        """So far, by cause."""
        watched = {name: watch.seconds for name, watch in self._watches.items()}
        return watched | self._environments.seconds

    def snapshot(self) -> Snapshot:
        """See `Collector.snapshot`."""
        self._begin()
        arrays: dict[str, np.ndarray] = {"generator": self._generator.get_state().numpy()}
        notes = []
        for env, (parts, note) in enumerate(self._environments.snapshot()):
            arrays |= {f"{env}/{name}": values for name, values in parts.items()}
            notes.append(note)
        return arrays, {"collector": "sync", "environments": notes}

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `Collector.restore`."""
        notes = note.get("environments")
        if note.get("collector") != "sync" or not isinstance(notes, list):
            raise UserError(f"snapshot: of collector '{note.get('collector')}', this one is 'sync'")
        if len(notes) != self.num_envs:
            raise UserError(f"snapshot: of {len(notes)} environments, here are {self.num_envs}")
        parts: list[dict[str, np.ndarray]] = [{} for _ in notes]
        try:
            for key, values in arrays.items():
                env, _, name = key.partition("/")
                if name:
                    parts[int(env)][name] = values
            self._generator.set_state(torch.from_numpy(np.array(arrays["generator"])))
        except (KeyError, ValueError, IndexError, TypeError, RuntimeError) as error:
            raise UserError(f"snapshot: not one of collector 'sync' ({error!r})") from None
        self._environments.restore(list(zip(parts, notes, strict=True)))
        self._begun = True

    def close(self) -> None:
        """See `Collector.close`."""
        self._environments.close()


def _breakdown(spent: dict[str, float], total: float) -> dict[str, float]:
    """`Collection.seconds` of the seconds by cause within a total."""
    spent = dict(spent)
    spent["waiting"] = spent.pop("receiving") - sum(spent[cause] for cause in CAUSES)
    return spent | {"other": total - sum(spent.values())}


COLLECTORS: dict[str, Callable[..., Any]] = {"sync": Sync}


def make(
    name: str,
    factory: HomesFactory,
    num_envs: int,
    processes: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Collector:
    """A collector with environments of its own.

    Args:
        name: one of `COLLECTORS`
        factory: of the environments
        num_envs: how many
        processes: workers that the environments are spread over; 0: they are in this process
        seed: of the actions that are drawn
        device: of the policy

    Raises:
        UserError: the name is unknown (names the nearest), a number is out of range, or one that
            the factory raised.
        RunError: a worker could not start.
    """
    if name not in COLLECTORS:
        raise unknown("collector", name, COLLECTORS)
    if num_envs < 1:
        raise UserError(f"num_envs: must be at least 1, got {num_envs}")
    environments: Environments
    if processes == 0:
        environments = Serial(factory, num_envs)
    else:
        environments = Workers(factory, num_envs, processes)
    collector: Collector = COLLECTORS[name](environments, seed, device)
    return collector
