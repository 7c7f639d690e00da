"""Synthetic environment in which only the duration of steps matters; needs nothing but numpy.

Step durations of an episode are log-normal around the episode's own median, which is up to 8 times
that of the quickest episode; occasionally a step takes 10 times as long. A reset takes as long as
50 steps. Observations and rewards are cheap to compute. All durations of an episode are drawn
before it begins, from the seed and the number of the environment alone, so every measurement has
the same sequence: `Timing` gives that sequence without an environment.

Other programs load this file by its path, so it imports nothing of this package.
"""

import time
from typing import Any

import numpy as np

VARIANTS = ("waiting", "busy", "none")
DEPTH, STATE, ACTIONS = (64, 64), 20, 10

# With these values, 16 environments that never wait give about 500 steps per second.
MEDIAN_STEP_S = 6e-3  # of an episode whose factor is 1
STEP_SIGMA = 0.5  # standard deviation of the logarithm of a step's duration
SPIKE_PROBABILITY, SPIKE_FACTOR = 0.01, 10.0
EPISODE_FACTOR = (1.0, 8.0)  # log-uniform
EPISODE_STEPS = (50, 200)  # uniform, both ends included
RESET_S = 0.857  # 50 times the median of all steps
TRUNCATED = 0.5  # fraction of episodes that are truncated; the others terminate
EPISODES = 10_000  # episodes after a restart are numbered from a multiple of this

_TILE = 128  # side of the pattern from which images are cut, pixels


def describe() -> dict[str, Any]:
    """Returns the parameters of the durations and the shapes, as JSON types."""
    return {
        "median_step_s": MEDIAN_STEP_S,
        "step_sigma": STEP_SIGMA,
        "spike_probability": SPIKE_PROBABILITY,
        "spike_factor": SPIKE_FACTOR,
        "episode_factor": list(EPISODE_FACTOR),
        "episode_steps": list(EPISODE_STEPS),
        "reset_s": RESET_S,
        "truncated": TRUNCATED,
        "depth": list(DEPTH),
        "state": STATE,
        "actions": ACTIONS,
    }


class Timing:
    """Durations of one environment's episodes, one episode after the other.

    `factor` is that of the current episode, `step_s` (its length,) are the durations of its steps,
    `truncated` is whether it ends by truncation, and `reset_s` is the duration of the reset before
    it. All durations are in seconds.
    """

    def __init__(self, number: int, seed: int = 0, restarts: int = 0) -> None:
        self.rng = np.random.default_rng((seed, number, 0, restarts))
        self.factor = 0.0
        self.reset_s = RESET_S
        self.step_s = np.zeros(0)
        self.truncated = False

    def draw(self) -> None:
        """Draws the next episode."""
        low, high = np.log(EPISODE_FACTOR)
        self.factor = float(np.exp(self.rng.uniform(low, high)))
        self.truncated = bool(self.rng.random() < TRUNCATED)
        steps = int(self.rng.integers(EPISODE_STEPS[0], EPISODE_STEPS[1] + 1))
        usual = np.exp(STEP_SIGMA * self.rng.standard_normal(steps))
        spikes = np.where(self.rng.random(steps) < SPIKE_PROBABILITY, SPIKE_FACTOR, 1.0)
        self.step_s = MEDIAN_STEP_S * self.factor * usual * spikes


def replay(number: int, seed: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the durations of an environment's first steps after its first reset, in seconds.

    Both arrays are (steps,): the steps themselves, and the reset that follows each, which is 0
    within an episode.
    """
    timing = Timing(number, seed)
    took, resets, total = [], [], 0
    while total < steps:
        timing.draw()
        took.append(timing.step_s)
        resets.append(np.zeros(len(timing.step_s)))
        resets[-1][-1] = timing.reset_s
        total += len(timing.step_s)
    return np.concatenate(took)[:steps], np.concatenate(resets)[:steps]


def ceiling(num_envs: int, seed: int = 0, steps: int = 12_500) -> float:
    """Returns the steps per second of all environments if none ever waited, resets included.

    Each environment is replayed for `steps` steps.
    """
    busy_s = [sum(part.sum() for part in replay(env, seed, steps)) for env in range(num_envs)]
    return float(sum(steps / seconds for seconds in busy_s))


class SyntheticEnv:
    """One environment, without automatic resets.

    `variant` is how a step spends its time: "waiting" sleeps, as with a simulator on an
    accelerator; "busy" uses a core for that time, and takes longer if it has to share the core;
    "none" takes no time. All durations are multiplied by `slowness`. `drawn_s` is the nominal
    duration of all steps and resets so far.

    The reward is 1 less the mean squared distance between the action, clipped to [-1, 1], and the
    first ten entries of the state, which are drawn in each step.

    An environment that replaces a lost one has its number of `restarts`, and draws other episodes.

    Raises:
        ValueError: the variant is unknown.
    """

    def __init__(
        self,
        number: int,
        seed: int = 0,
        variant: str = "waiting",
        restarts: int = 0,
        slowness: float = 1.0,
    ) -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant: unknown value '{variant}' (valid: {', '.join(VARIANTS)})")
        self.number, self.seed, self.variant = number, seed, variant
        self._slowness = slowness
        self.timing = Timing(number, seed, restarts)
        self.episode = EPISODES * restarts - 1
        self.steps = 0  # of the current episode
        self.drawn_s = 0.0
        self._rng = np.random.default_rng((seed, number, 1, restarts))
        # Each environment has its own pattern, of which an image is a section.
        tile = self._rng.random((_TILE - DEPTH[0], _TILE - DEPTH[1]), dtype=np.float32)
        self._tile = np.tile(tile, (2, 2))
        self._state = np.zeros(STATE, np.float32)
        self._corner = (0, 0)

    def reset(self) -> dict[str, np.ndarray]:
        """Begins the next episode; returns its first observation, as `observe`."""
        begun = self._clock()
        self.skip()
        self._show()
        self._spend(self.timing.reset_s, begun)
        return self.observe()

    def skip(self) -> None:
        """Advances to the next episode without beginning it, which takes no time."""
        self.timing.draw()
        self.episode, self.steps = self.episode + 1, 0

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool]:
        """Steps under an action (10,); returns observation, reward, terminated and truncated.

        Raises:
            RuntimeError: the episode is over, or none was begun.
        """
        begun = self._clock()
        length = len(self.timing.step_s)
        if self.steps >= length:
            raise RuntimeError("the episode is over: reset comes first")
        wanted = self._state[:ACTIONS]
        error = np.clip(np.asarray(action, np.float32), -1.0, 1.0) - wanted
        reward = 1.0 - float(error @ error) / ACTIONS
        self.steps += 1
        self._show()
        over, truncated = self.steps == length, self.timing.truncated
        self._spend(float(self.timing.step_s[self.steps - 1]), begun)
        return self.observe(), reward, over and not truncated, over and truncated

    def observe(self) -> dict[str, np.ndarray]:
        """Returns the float32 observation: "depth" (64, 64) in [0, 1], "state" (20,) in [-1, 1]."""
        y, x = self._corner
        depth = self._tile[y : y + DEPTH[0], x : x + DEPTH[1]].copy()
        return {"depth": depth, "state": self._state.copy()}

    def snapshot(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the state of the environment without its variant: arrays, and JSON types."""
        arrays: dict[str, np.ndarray] = {
            "step_s": self.timing.step_s.copy(),
            "tile": self._tile.copy(),
            "state": self._state.copy(),
        }
        note: dict[str, Any] = {
            "timing": self.timing.rng.bit_generator.state,
            "content": self._rng.bit_generator.state,
            "factor": self.timing.factor,
            "truncated": self.timing.truncated,
            "episode": self.episode,
            "steps": self.steps,
            "drawn_s": self.drawn_s,
            "corner": list(self._corner),
        }
        return arrays, note

    def restore(self, arrays: dict[str, np.ndarray], note: dict[str, Any]) -> None:
        """Restores a snapshot, which may be of another environment.

        Raises:
            KeyError, TypeError, ValueError: the snapshot is invalid.
        """
        timing, rng = np.random.default_rng(), np.random.default_rng()
        timing.bit_generator.state, rng.bit_generator.state = note["timing"], note["content"]
        y, x = note["corner"]
        step_s, tile, state = arrays["step_s"], arrays["tile"], arrays["state"]
        if tile.shape != self._tile.shape or state.shape != self._state.shape or step_s.ndim != 1:
            raise ValueError("arrays of other shapes")
        self.episode, self.steps = int(note["episode"]), int(note["steps"])
        self.drawn_s = float(note["drawn_s"])
        self.timing.factor, self.timing.truncated = float(note["factor"]), bool(note["truncated"])
        self.timing.rng, self._rng = timing, rng
        self.timing.step_s, self._tile, self._state = step_s.copy(), tile.copy(), state.copy()
        self._corner = (int(y), int(x))

    def _show(self) -> None:
        """Draws the next observation."""
        self._state = self._rng.uniform(-1.0, 1.0, STATE).astype(np.float32)
        y, x = self._rng.integers(0, _TILE - DEPTH[0], 2)
        self._corner = (int(y), int(x))

    def _clock(self) -> float:
        """Returns the time in seconds; for "busy", the core time of this thread."""
        return time.thread_time() if self.variant == "busy" else time.perf_counter()

    def _spend(self, seconds: float, begun: float) -> None:
        """Lets `seconds` pass since `begun`, in the way of the variant."""
        seconds *= self._slowness
        self.drawn_s += seconds
        until = begun + seconds
        if self.variant == "waiting":
            left = until - time.perf_counter()
            if left > 0:
                time.sleep(left)
        elif self.variant == "busy":
            work = np.ones(2_000)
            while time.thread_time() < until:
                work *= 1.0
