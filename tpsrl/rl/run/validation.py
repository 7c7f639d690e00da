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

# Makes environments that take the starts of these numbers in turn, for one time: environment i of n
# takes those at the places i, i + n, i + 2 n, ..., and after the last any. It tolerates no failure.
MakePool = Callable[[Sequence[int]], EnvPool]
# Makes a context in which an error is raised where it stands, when there is a reason to.
Raising = Callable[[type[Exception]], contextlib.AbstractContextManager[None]]

_MOST_FAILURES = 16  # in one validation; a bad start among 50 in a process is found by 8
_SAY_AFTER_S, _SAY_EVERY_S = 5.0, 60.0  # how far it is
_FEWEST = 0.5  # of the episodes, for a validation to say anything


@dataclasses.dataclass(frozen=True, slots=True)
class Validated:
    """The episodes of a validation in the order of their starts, and the starts that were lost."""

    episodes: list[EpisodeStats]
    lost: tuple[int, ...]

    @property
    def given_up(self) -> bool:
        """Whether so few episodes are left that they say nothing."""
        return len(self.episodes) < _FEWEST * (len(self.episodes) + len(self.lost))

    def to_json(self) -> dict[str, Any]:
        """Means over the episodes (success, return, steps, the share of each end), and the lost."""
        lost = {"count": len(self.lost), "starts": list(self.lost)}
        if self.given_up:
            return {"episodes": len(self.episodes), "lost": lost}
        count = len(self.episodes)
        ends = [episode.ended_by for episode in self.episodes]
        return {
            "episodes": count,
            "success": sum(episode.success for episode in self.episodes) / count,
            "return": sum(episode.reward for episode in self.episodes) / count,
            "length": sum(episode.steps for episode in self.episodes) / count,
            "ended": {name: ends.count(name) / count for name in sorted(set(ends))},
            "lost": lost,
        }


class Validation:
    """Validates policies on the same starts, again and again.

    A home that raises, dies or hangs costs its start and nothing else. Which of the starts in a
    process it was is found by running them again in ever smaller groups; one that fails by itself
    is in `lost` (start -> cause) and is left out from then on.

    Args:
        make: makes the environments
        count: of starts, which are those with the numbers 0 to `count` - 1
        say: is told what is lost
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
        """The episodes from all starts but those that are lost.

        Args:
            policy: that acts
            stop: is asked at every step
            raising: makes a context in which `Stopped` is raised instead, for where there are no
                steps yet: processes start for seconds

        Raises:
            Stopped: it is not to go on.
        """
        done: dict[int, EpisodeStats] = {}
        self._next_s = time.monotonic() + _SAY_AFTER_S
        groups = [[start for start in self._starts if start not in self.lost]]
        failures, cause = 0, ""
        while groups and failures <= _MOST_FAILURES and not self._hopeless():
            self._look(len(done), stop)  # what failed may have had the signal as well
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
                f"validation given up: {len(lost)} of {len(self._starts)} starts are lost "
                f"({cause}); the training goes on"
            )
            self.lost = {}  # So much was hardly the starts' fault; the next time may be better.
        return found

    def _look(self, done: int, stop: Callable[[], bool]) -> None:
        """Between two steps: ends it if that is asked for, and says at times how far it is."""
        if stop():
            raise Stopped
        if time.monotonic() > self._next_s:
            self._next_s = time.monotonic() + _SAY_EVERY_S
            self._say(f"validating: {done} of {len(self._starts)} episodes")

    def _hopeless(self) -> bool:
        return len(self.lost) > (1.0 - _FEWEST) * len(self._starts)

    def _divide(self, passage: "_Passage", broken: "_Broken") -> list[list[int]]:
        """The groups in which the starts of a passage that failed are to be run again."""
        group, left = passage.starts, passage.left()
        if len(group) == 1:
            self.lost[group[0]] = str(broken)
            self._say(f"validation: start {group[0]} is left out ({broken})")
            return []
        suspects = left if broken.envs is None else passage.at(broken.envs)
        others = [start for start in left if start not in suspects]
        if not others:
            half = (len(suspects) + 1) // 2
            suspects, others = suspects[:half], suspects[half:]
        self._say(f"validation: {broken}; {len(left)} of {len(group)} starts are run again")
        return [part for part in (others, suspects) if part]


class Stopped(Exception):
    """A validation was to end before its end."""


class _Broken(Exception):
    """Environments failed, of which it is known or not (None) in which process these are."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error) if isinstance(error, RunError | UserError) else repr(error))
        self.envs = error.envs if isinstance(error, EnvsFailed) else None


@contextlib.contextmanager
def _environments() -> Iterator[None]:
    """What is raised inside is the environments' failure."""
    try:
        yield
    except Stopped:
        raise
    except Exception as error:
        raise _Broken(error) from error


class _Passage:
    """Episodes from some starts, in environments of their own; those that end go into `done`."""

    def __init__(
        self, starts: Sequence[int], done: dict[int, EpisodeStats], look: Callable[[], None]
    ) -> None:
        self.starts, self._done, self._look = starts, done, look
        self._ended: np.ndarray | None = None  # (n,) how many episodes of each environment

    def left(self) -> list[int]:
        """The starts whose episodes have not come to their end."""
        return [start for start in self.starts if start not in self._done]

    def at(self, envs: np.ndarray) -> list[int]:
        """Of the starts that are left those that environments are in or were about to begin."""
        if self._ended is None:
            return self.left()
        size = len(self._ended)
        places = {env + size * (int(self._ended[env]) + k) for env in envs.tolist() for k in (0, 1)}
        near = {self.starts[place] for place in places if place < len(self.starts)}
        return [start for start in self.left() if start in near]

    def run(self, policy: ActorCritic, make: MakePool, raising: Raising) -> None:
        """Goes through all of them, unless the environments are `_Broken` before.

        Actions are drawn as in training, by a generator that always begins the same, so a policy
        has the same result again. The mean of the distribution is not what was trained: the mean of
        a stop may stay under the threshold for ever while one draw in three is above it.
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
                # Who has no start left goes through others, or the same again.
                if episode.start_index in self.starts:
                    self._done.setdefault(episode.start_index, episode)
            assert step.memory is not None
            memory, previous = step.memory, action
            is_first = torch.from_numpy(np.asarray(reply.terminated | reply.truncated)).to(device)
