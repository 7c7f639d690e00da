"""Gymnasium vector environment of a skill: many homes of one simulator in one process.

With `seed`, home i draws its start states with `seed` + i, and has the same episodes as a
`SkillEnv` with that seed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from skills.envs.batch import SkillBatch, SkillSnapshot, checked_actions
from skills.envs.copying import Copied
from skills.envs.environment import (
    action_space,
    check_open,
    choose,
    fitted,
    homes_of,
    observation_space,
    reset_options,
)
from skills.envs.infos import Told, begun, merged, stepped, with_masks
from skills.envs.options import EnvOptions, check_whole
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import Observation
from tpsrl.sim.base import Simulator


class SkillVectorEnv(Copied, VectorEnv[Observation, np.ndarray, np.ndarray]):
    """One skill in `num_envs` homes.

    `infos` have the entries of a `SkillEnv`'s `info` in gymnasium's form: each entry is an array
    (n,), and the entry of the same name with a leading underscore is the mask of the homes for
    which the array is valid.

    Args:
        skill: name of the skill
        num_envs: number of homes
        render_mode: "rgb_array" or None
        simulator: simulator to use instead of the one that the keyword arguments describe; its
            number of homes takes precedence over `num_envs`
        depth_channel: whether depth has a leading axis of one channel
        autoreset_mode: what happens after the end of an episode. "NextStep": the next step starts
            another episode and ignores the action. "SameStep": the same step starts another
            episode, and `infos` have "final_obs" and "final_info" of the one that ended.
            "Disabled": the caller has to call `reset(options={"reset_mask": mask})`.
        given: see `skills.envs.options.EnvKeywords`

    Raises:
        UnknownKeyword: a keyword argument is unknown.
        UserError: an option is out of range.
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
        depth_channel: bool = False,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **given: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        options = EnvOptions.of(skill, **given)
        self.autoreset_mode = _autoreset(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.brought = simulator is not None
        self.batch = SkillBatch(options, homes_of(simulator) or options.simulator(num_envs))
        self.source = options.source()
        self.num_envs = self.batch.num_envs
        self.single_observation_space = observation_space(options, depth_channel)
        self.single_action_space = action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.failures = self.batch.skill.failures
        self._starts = np.full(self.num_envs, -1)
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]

    @property
    def action_mask(self) -> np.ndarray:
        """Action mask (11,) bool: True for the parts that have an effect."""
        return self.batch.mask.copy()

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """See `gymnasium.vector.VectorEnv.reset`; `options={"start": 3}` applies to all homes.

        With `options={"reset_mask": mask}`, (n,) bool, only these homes are reset.
        """
        check_open(self.closed)
        options = dict(reset_options(options))
        chosen = self._chosen(options.pop("reset_mask", None))
        self._seed(seed, chosen)
        env_ids = np.flatnonzero(chosen).tolist()
        if not env_ids:
            return self._fitted(self.batch.observe(range(self.num_envs))), {}
        fresh, info = self._restart(env_ids, options)
        infos = with_masks(merged(self.num_envs, [(env_ids, info)]), chosen)
        if len(env_ids) == self.num_envs:
            return fresh, infos
        shown = self._blank()
        _write(shown, env_ids, fresh)
        others = np.flatnonzero(~chosen).tolist()  # at least one
        _write(shown, others, self._fitted(self.batch.observe(others)))
        return shown, infos

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """See `gymnasium.vector.VectorEnv.step`."""
        check_open(self.closed)
        actions = checked_actions(actions, self.num_envs)
        fresh, going = np.flatnonzero(self._over).tolist(), np.flatnonzero(~self._over).tolist()
        if fresh and self.autoreset_mode is AutoresetMode.DISABLED:
            raise UserError(
                f"actions: the episode of environment {fresh[0]} has ended; reset it with "
                "options={'reset_mask': mask}"
            )
        reward = np.zeros(self.num_envs)
        terminated, truncated = (np.zeros(self.num_envs, dtype=bool) for _ in range(2))
        parts: list[tuple[list[int], Observation, Told]] = []
        if going:
            done = self.batch.step(going, actions[going])
            outcome = done.outcome
            reward[going] = outcome.reward
            terminated[going], truncated[going] = outcome.terminated, outcome.truncated
            info = stepped(self.batch, going, self._starts[going].tolist(), done)
            parts.append((going, self._fitted(done.observation), info))
        if fresh:
            parts.append((fresh, *self._restart(fresh, {})))
        self._over = terminated | truncated
        final: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._over.any():
            ((_, shown, info),) = parts
            final = self._final(shown, info)
            ended = np.flatnonzero(self._over).tolist()
            parts.append((ended, *self._restart(ended, {})))
        info = merged(self.num_envs, [(env_ids, info) for env_ids, _, info in parts])
        infos = with_masks(info, np.ones(self.num_envs, dtype=bool)) | final
        return self._whole(parts), reward, terminated, truncated, infos

    def snapshot(self, env_id: int) -> SkillSnapshot:
        """Returns a snapshot of a home and its task, without the generator of start states."""
        check_open(self.closed)
        return self.batch.snapshot(self._home(env_id))

    def restore(self, env_id: int, snapshot: SkillSnapshot) -> Observation:
        """Restores a home and its task exactly and returns the observation, without batch axis.

        See `SkillEnv.restore`.
        """
        check_open(self.closed)
        shown = self._fitted(self.batch.restore(self._home(env_id), snapshot))
        self._over[env_id] = False
        return {name: values[0] for name, values in shown.items()}

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Renders each home, (360, 480, 3) uint8, or returns None without a render mode."""
        check_open(self.closed)
        if self.render_mode is None:
            return None
        return tuple(self.batch.simulator.render(env) for env in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the homes."""
        self.batch.simulator.close()

    def _chosen(self, mask: Any) -> np.ndarray:
        """Returns a checked reset mask (n,) bool; None stands for all homes.

        Raises:
            UserError: `mask` is not an array (n,) bool.
        """
        if mask is None:
            return np.ones(self.num_envs, dtype=bool)
        chosen = np.asarray(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != bool:
            raise UserError(
                f"reset_mask: must be a boolean array of shape ({self.num_envs},), got {mask!r}"
            )
        return chosen

    def _seed(self, seed: int | list[int | None] | None, chosen: np.ndarray) -> None:
        """Seeds the random generators of chosen homes.

        Args:
            seed: one seed for each home, where None keeps the generator; one number, to which the
                home's number is added; or None, which keeps all generators
            chosen: (n,) bool, homes to seed

        Raises:
            UserError: `seed` has the wrong type, sign or length.
        """
        if seed is None:
            return
        if isinstance(seed, Sequence) and not isinstance(seed, str):
            if len(seed) != self.num_envs:
                raise UserError(f"seed: {len(seed)} seeds for {self.num_envs} environments")
            seeds = [s if s is None else check_whole("seed", s, least=0) for s in seed]
        else:
            first = check_whole("seed", seed, least=0)
            seeds = [first + env for env in range(self.num_envs)]
        for env, value in enumerate(seeds):
            if chosen[env] and value is not None:
                self._rngs[env] = seeding.np_random(value)[0]

    def _home(self, env_id: int) -> int:
        """Checks the number of a home and returns it.

        Raises:
            UserError: the home does not exist.
        """
        return check_whole("env_id", env_id, least=0, most=self.num_envs - 1)

    def _restart(self, env_ids: list[int], options: dict[str, Any]) -> tuple[Observation, Told]:
        """Starts an episode in each of these homes; returns first observations and infos."""
        drawn = [choose(self.source, self._rngs[env], options) for env in env_ids]
        shown = self._fitted(self.batch.reset(env_ids, [start for _, start in drawn]))
        self._over[env_ids] = False
        self._starts[env_ids] = [index for index, _ in drawn]
        return shown, begun(self.batch, env_ids, self._starts[env_ids].tolist())

    def _final(self, shown: Observation, info: Told) -> dict[str, Any]:
        """Returns "final_obs" and "final_info" of ended episodes, from those of all homes."""
        seen = np.full(self.num_envs, None, dtype=object)
        for env in np.flatnonzero(self._over):
            seen[env] = {name: values[env].copy() for name, values in shown.items()}
        over = self._over.copy()
        return with_masks({"final_info": info}, over) | {"final_obs": seen, "_final_obs": over}

    def _whole(self, parts: Sequence[tuple[list[int], Observation, Told]]) -> Observation:
        """Merges observations of subsets of homes; later parts overwrite earlier ones."""
        (env_ids, first, _), *others = parts
        shown = first if len(env_ids) == self.num_envs else self._blank()
        for homes, part, _ in others if shown is first else parts:
            _write(shown, homes, part)
        return shown

    def _fitted(self, shown: Observation) -> Observation:
        return fitted(shown, self.single_observation_space)

    def _blank(self) -> Observation:
        return {
            name: np.zeros(space.shape, dtype=space.dtype)
            for name, space in self.observation_space.spaces.items()  # type: ignore[attr-defined]
        }


def _autoreset(given: Any) -> AutoresetMode:
    """Converts to an autoreset mode.

    Raises:
        UserError: the mode is unknown.
    """
    try:
        return AutoresetMode(given)
    except ValueError:
        raise unknown("autoreset_mode", given, [mode.value for mode in AutoresetMode]) from None


def _write(shown: Observation, env_ids: list[int], part: Observation) -> None:
    for name, values in part.items():
        shown[name][env_ids] = values
