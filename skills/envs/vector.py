"""A skill as a gymnasium vector environment: many homes of one simulator in one process.

Home i draws its starts with the seed of the whole plus i, so it goes through the same episodes as
a `SkillEnv` with that seed. An episode that is over starts anew with the next step, whose action
the home ignores (gymnasium's next-step mode).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from skills.core.arrays import Array
from skills.envs.batch import BatchStep, SkillBatch, checked_actions
from skills.envs.environment import (
    action_space,
    bounded,
    check_open,
    choose,
    final_info,
    homes_of,
    observation_space,
    reset_options,
)
from skills.envs.options import EnvOptions, check_whole
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import Observation
from tpsrl.sim.base import Simulator


class SkillVectorEnv(VectorEnv[Observation, np.ndarray, np.ndarray]):
    """`num_envs` homes; keyword arguments are those of `skills.envs.options.EnvKeywords`.

    `infos` hold what the `info` of a `SkillEnv` does, as gymnasium's vectors of environments do:
    each entry has an array (n,), and beside it, with an underscore before its name, which homes it
    is about. So "start" is of the homes that were reset in this step, "success", "failure" and
    "reward_terms" of those that were stepped, "results" and "path" of those whose episode is over.

    Raises:
        UserError: an option is unknown or out of range.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": 30,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        skill: str,
        num_envs: int = 1,
        render_mode: str | None = None,
        simulator: Simulator | None = None,
        **given: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        options = EnvOptions.of(skill, **given)
        self.render_mode = render_mode
        self.batch = SkillBatch(options, homes_of(simulator) or options.simulator(num_envs))
        self._source = options.source()
        self.num_envs = self.batch.num_envs
        self.single_observation_space = observation_space(options)
        self.single_action_space = action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]

    @property
    def action_mask(self) -> np.ndarray:
        """(11,) bool: the parts of an action that have an effect."""
        return self.batch.mask.copy()

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """See `gymnasium.vector.VectorEnv.reset`; `options={"start": 3}` holds for all homes.

        With `options={"reset_mask": mask}`, (n,) bool, the other homes go on.
        """
        check_open(self.closed)
        options = dict(reset_options(options))
        chosen = self._chosen(options.pop("reset_mask", None))
        self._seed(seed, chosen)
        env_ids = np.flatnonzero(chosen).tolist()
        fresh, infos = self._restart(env_ids, options)
        if len(env_ids) == self.num_envs:
            return self._bounded(fresh), infos
        shown = self._blank()
        _write(shown, env_ids, fresh)
        others = np.flatnonzero(~chosen).tolist()  # at least one
        _write(shown, others, self.batch.observe(others))
        return self._bounded(shown), infos

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """See `gymnasium.vector.VectorEnv.step`."""
        check_open(self.closed)
        actions = checked_actions(actions, self.num_envs)
        fresh, going = np.flatnonzero(self._over).tolist(), np.flatnonzero(~self._over).tolist()
        if not fresh:
            done = self.batch.step(going, actions)
            outcome = done.outcome
            self._over = outcome.terminated | outcome.truncated
            infos = self._infos(going, done)
            told = outcome.reward, outcome.terminated, outcome.truncated
            reward, terminated, truncated = map(np.asarray, told)
            return self._bounded(done.observation), reward, terminated, truncated, infos
        shown, infos = self._blank(), {}
        reward = np.zeros(self.num_envs)
        terminated, truncated = (np.zeros(self.num_envs, dtype=bool) for _ in range(2))
        if going:
            done = self.batch.step(going, actions[going])
            _write(shown, going, done.observation)
            reward[going] = done.outcome.reward
            terminated[going], truncated[going] = done.outcome.terminated, done.outcome.truncated
            infos = self._infos(going, done)
        restarted, starts = self._restart(fresh, {})
        _write(shown, fresh, restarted)
        self._over = terminated | truncated
        return self._bounded(shown), reward, terminated, truncated, infos | starts

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture (360, 480, 3) uint8 of each home, None without a render mode."""
        check_open(self.closed)
        if self.render_mode is None:
            return None
        return tuple(self.batch.simulator.render(env) for env in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the homes."""
        self.batch.simulator.close()

    def _chosen(self, mask: Any) -> np.ndarray:
        """Which homes a mask (n,) chooses, all without one.

        Raises:
            UserError: it is no such mask.
        """
        if mask is None:
            return np.ones(self.num_envs, dtype=bool)
        chosen = np.asarray(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != bool:
            raise UserError(
                f"reset_mask: {mask!r} is not an array of {self.num_envs} times true or false"
            )
        return chosen

    def _seed(self, seed: int | list[int | None] | None, chosen: np.ndarray) -> None:
        """Gives homes generators of their own seeds.

        Raises:
            UserError: it is neither a number nor one, or None, for each home.
        """
        if seed is None:
            return
        if isinstance(seed, Sequence) and not isinstance(seed, str):
            if len(seed) != self.num_envs:
                raise UserError(f"seed: {len(seed)} of them for {self.num_envs} homes")
            seeds = [s if s is None else check_whole("seed", s, least=0) for s in seed]
        else:
            first = check_whole("seed", seed, least=0)
            seeds = [first + env for env in range(self.num_envs)]
        for env, value in enumerate(seeds):
            if chosen[env] and value is not None:
                self._rngs[env] = seeding.np_random(value)[0]

    def _restart(
        self, env_ids: list[int], options: dict[str, Any]
    ) -> tuple[Observation, dict[str, Any]]:
        if not env_ids:
            return {}, {}
        drawn = [choose(self._source, self._rngs[env], options) for env in env_ids]
        self._over[env_ids] = False
        infos: dict[str, Any] = {}
        for env, (index, _) in zip(env_ids, drawn, strict=True):
            infos = self._add_info(infos, {"start": index}, env)
        return self.batch.reset(env_ids, [start for _, start in drawn]), infos

    def _bounded(self, shown: Observation) -> Observation:
        bounded(shown, self.single_observation_space)
        return shown

    def _blank(self) -> Observation:
        return {
            name: np.zeros(space.shape, dtype=space.dtype)
            for name, space in self.observation_space.spaces.items()  # type: ignore[attr-defined]
        }

    def _infos(self, env_ids: list[int], done: BatchStep) -> dict[str, Any]:
        """In gymnasium's form: beside each array a mask "_name" of the homes that it is about."""
        here = np.zeros(self.num_envs, dtype=bool)
        here[env_ids] = True
        terms: dict[str, Any] = {}
        for name, term in done.outcome.reward_terms.items():
            terms |= {name: self._spread(env_ids, term), f"_{name}": here}
        failures = np.array(self.batch.skill.failures)
        infos: dict[str, Any] = {
            "success": self._spread(env_ids, done.outcome.success),
            "failure": failures[self._spread(env_ids, done.outcome.failure)],
            "reward_terms": terms,
        }
        infos |= {f"_{name}": here for name in list(infos)}
        for row, env in enumerate(env_ids):
            if done.outcome.terminated[row] or done.outcome.truncated[row]:
                infos = self._add_info(infos, final_info(self.batch, env, done, row), env)
        return infos

    def _spread(self, env_ids: list[int], told: Array) -> np.ndarray:
        values = np.asarray(told)
        if len(env_ids) == self.num_envs:
            return values
        spread = np.zeros((self.num_envs, *values.shape[1:]), dtype=values.dtype)
        spread[env_ids] = values
        return spread


def _write(shown: Observation, env_ids: list[int], part: Observation) -> None:
    for name, values in part.items():
        shown[name][env_ids] = values
