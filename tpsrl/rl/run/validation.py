"""Validation: a policy's success on start states that it is not trained on."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pool import EnvPool, EnvsFailed, step_all
from tpsrl.rl.envs.vec_env import EpisodeStats
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import tally

# Makes environments that run the start states of these numbers once: environment i of n runs those
# at positions i, i + n, i + 2 n, ..., and any others afterwards. No failure is tolerated.
MakePool = Callable[[Sequence[int]], EnvPool]
# Makes a context in which the given error is raised as soon as there is a reason to stop.
Raising = Callable[[type[Exception]], contextlib.AbstractContextManager[None]]

_MOST_FAILURES = 16  # in one validation; 8 failures find one bad start among 50 in a process
_SAY_AFTER_S, _SAY_EVERY_S = 5.0, 60.0  # of messages about progress
_FEWEST = 0.5  # of the episodes, for a meaningful result


@dataclasses.dataclass(frozen=True, slots=True)
class Validated:
    """Episodes of a validation in the order of their start states, and the lost start states."""

    episodes: list[EpisodeStats]
    lost: tuple[int, ...]

    @property
    def given_up(self) -> bool:
        """Whether too few episodes are left for a meaningful result."""
        return len(self.episodes) < _FEWEST * (len(self.episodes) + len(self.lost))

    def to_json(self) -> dict[str, Any]:
        """Returns the lost start states, and means over the episodes.

        The means are of success, return and length, of the share of each end, and of the task's
        metrics. They are left out if the validation is given up.
        """
        lost = {"count": len(self.lost), "starts": list(self.lost)}
        if self.given_up:
            return {"episodes": len(self.episodes), "lost": lost}
        count = len(self.episodes)
        ends = [episode.ended_by for episode in self.episodes]
        found = {
            "episodes": count,
            "success": sum(episode.success for episode in self.episodes) / count,
            "return": sum(episode.reward for episode in self.episodes) / count,
            "length": sum(episode.steps for episode in self.episodes) / count,
            "ended": {name: ends.count(name) / count for name in sorted(set(ends))},
            "lost": lost,
        }
        metrics = tally.means(episode.metrics for episode in self.episodes)
        return found | ({"metrics": metrics} if metrics else {})


class Validation:
    """Validates policies on the same start states each time.

    An environment that raises an error, dies or hangs costs only its start state. Which one in a
    process it was is found by running them again in ever smaller groups. A start state that fails
    alone is put into `lost` (start -> cause) and left out of later validations.

    Args:
        make: makes the environments
        count: number of start states, which have the numbers 0 to `count` - 1
        say: receives messages about losses and progress
    """

    def __init__(self, make: MakePool, count: int, say: Callable[[str], None]) -> None:
        self._make, self._starts, self._say = make, range(count), say
        self.lost: dict[int, str] = {}
        self._next_s = 0.0

    def run(
        self,
        policy: ActorCritic,
        stop: Callable[[], bool] = lambda: False,
        raising: Raising = lambda error: contextlib.nullcontext(),
    ) -> Validated:
        """Runs the episodes from all start states except those that are lost.

        Args:
            policy: policy that acts
            stop: polled at every step; True stops the validation
            raising: makes a context in which `Stopped` is raised at once, for phases without steps:
                processes take seconds to start

        Raises:
            Stopped: the validation was stopped.
        """
        done: dict[int, EpisodeStats] = {}
        self._next_s = time.monotonic() + _SAY_AFTER_S
        groups = [[start for start in self._starts if start not in self.lost]]
        failures, cause = 0, ""
        while groups and failures <= _MOST_FAILURES and not self._hopeless():
            self._look(len(done), stop)  # the signal to stop may have caused the failure
            group = groups.pop(0)
            passage = _Passage(group, done, lambda: self._look(len(done), stop))
            try:
                passage.run(policy, self._make, raising)
            except _Broken as broken:
                failures, cause = failures + 1, str(broken)
                groups += self._divide(passage, broken)
        lost = tuple(start for start in self._starts if start not in done)
        found = Validated([done[start] for start in self._starts if start in done], lost)
        if found.given_up:
            self._say(
                f"validation aborted: {len(lost)} of {len(self._starts)} starts are lost "
                f"({cause}); the training continues"
            )
            self.lost = {}  # Hardly the start states' fault, so the next validation has all again.
        return found

    def _look(self, done: int, stop: Callable[[], bool]) -> None:
        """Stops the validation on request, and reports its progress; called between steps."""
        if stop():
            raise Stopped
        if time.monotonic() > self._next_s:
            self._next_s = time.monotonic() + _SAY_EVERY_S
            self._say(f"validating: {done} of {len(self._starts)} episodes")

    def _hopeless(self) -> bool:
        return len(self.lost) > (1.0 - _FEWEST) * len(self._starts)

    def _divide(self, passage: "_Passage", broken: "_Broken") -> list[list[int]]:
        """Returns the groups in which the start states of a failed passage are run again."""
        group, left = passage.starts, passage.left()
        if len(group) == 1:
            self.lost[group[0]] = str(broken)
            self._say(f"validation: start {group[0]} is skipped ({broken})")
            return []
        suspects = left if broken.envs is None else passage.at(broken.envs)
        others = [start for start in left if start not in suspects]
        if not others:
            half = (len(suspects) + 1) // 2
            suspects, others = suspects[:half], suspects[half:]
        self._say(f"validation: {broken}; {len(left)} of {len(group)} starts are run again")
        return [part for part in (others, suspects) if part]


class Stopped(Exception):
    """A validation was stopped before its end."""


class _Broken(Exception):
    """Environments failed; `envs` are those of the process, None if it is not known."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error) if isinstance(error, RunError | UserError) else repr(error))
        self.envs = error.envs if isinstance(error, EnvsFailed) else None


@contextlib.contextmanager
def _environments() -> Iterator[None]:
    """Converts errors inside the block to `_Broken`."""
    try:
        yield
    except Stopped:
        raise
    except Exception as error:
        raise _Broken(error) from error


class _Passage:
    """Episodes from some start states, in new environments; finished ones go into `done`."""

    def __init__(
        self, starts: Sequence[int], done: dict[int, EpisodeStats], look: Callable[[], None]
    ) -> None:
        self.starts, self._done, self._look = starts, done, look
        self._ended: np.ndarray | None = None  # (n,) finished episodes of each environment

    def left(self) -> list[int]:
        """Returns the start states whose episodes are not finished."""
        return [start for start in self.starts if start not in self._done]

    def at(self, envs: np.ndarray) -> list[int]:
        """Returns the unfinished start states that environments are in, or about to begin."""
        if self._ended is None:
            return self.left()
        size = len(self._ended)
        places = {env + size * (int(self._ended[env]) + k) for env in envs.tolist() for k in (0, 1)}
        near = {self.starts[place] for place in places if place < len(self.starts)}
        return [start for start in self.left() if start in near]

    def run(self, policy: ActorCritic, make: MakePool, raising: Raising) -> None:
        """Runs all episodes; raises `_Broken` if the environments fail before the end.

        Actions are drawn as in training, from a generator with a fixed seed, so a policy always has
        the same result. Mean actions are not what was trained: the mean of a stop may stay under
        the threshold forever, although one draw in three is above it.
        """
        with _environments(), raising(Stopped):
            pool = make(self.starts)
        with contextlib.closing(pool):
            self._ended = np.zeros(pool.num_envs, int)
            with _environments(), raising(Stopped):
                pool.reset()
            self._act(policy, pool)

    def _act(self, policy: ActorCritic, pool: EnvPool) -> None:
        size, device = pool.num_envs, policy.mask.device
        generator = torch.Generator(device).manual_seed(0)
        memory = policy.initial_memory(size)
        previous = torch.zeros(size, policy.spec.action_size, device=device)
        is_first = torch.ones(size, dtype=torch.bool, device=device)
        while self.left():
            self._look()
            shown = {n: torch.from_numpy(v).to(device) for n, v in pool.observation.items()}
            with torch.inference_mode():
                step = policy.act(shown, previous, memory, is_first)
                action = gaussian.sample(step.mean, step.std, policy.mask, generator)
            array = action.cpu().numpy()
            if not np.isfinite(array).all():
                raise RunError("policy: an action is not finite; is the learning rate too high?")
            with _environments():
                reply = step_all(pool, array)
            for episode in reply.episodes:
                assert self._ended is not None
                self._ended[episode.env] += 1
                # An environment without start states left runs others, or repeats its own.
                if episode.start_index in self.starts:
                    self._done.setdefault(episode.start_index, episode)
            assert step.memory is not None
            memory, previous = step.memory, action
            is_first = torch.from_numpy(np.asarray(reply.terminated | reply.truncated)).to(device)
