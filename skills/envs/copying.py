"""Exact copies of environments by `copy.deepcopy` and `pickle`, based on snapshots."""

from typing import Any

from skills.envs.batch import SkillBatch
from skills.starts.source import StartSource


class Copied:
    """Base of environments that can be copied, with homes, episodes and random generators.

    A copy has its own simulator and behaves exactly as the original. An environment that uses a
    caller's simulator cannot be copied, since the arguments of that simulator are unknown.
    """

    batch: SkillBatch
    source: StartSource
    closed: bool
    brought: bool  # whether the caller provided the simulator

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes, with snapshots instead of homes.

        Raises:
            TypeError: the caller provided the simulator, or the environment is closed.
        """
        if self.brought or self.closed:
            why = "has the caller's simulator" if self.brought else "is closed"
            raise TypeError(
                f"environment: {why} and cannot be copied; use snapshot() here and restore() in "
                "another environment"
            )
        batch, attributes = self.batch, dict(self.__dict__)
        known = [env for env in range(batch.num_envs) if batch.episodes[env] is not None]
        frozen = {env: batch.snapshot(env) for env in known}
        del attributes["source"]  # It may hold open files.
        return {**attributes, "batch": (batch.options, batch.num_envs, frozen)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Creates a new simulator and restores the snapshots in it.

        Raises:
            UserError: the snapshots are of another engine or version of the task.
        """
        options, num_envs, frozen = state["batch"]
        self.__dict__.update(state)
        self.batch, self.source = SkillBatch(options, options.simulator(num_envs)), options.source()
        for env, snapshot in frozen.items():
            self.batch.restore(env, snapshot)
