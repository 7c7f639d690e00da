"""Copies of environments, by `copy.deepcopy` and `pickle`: exact, since they are of snapshots."""

from typing import Any

from skills.envs.batch import SkillBatch
from skills.starts.source import StartSource


class Copied:
    """An environment that can be copied, with its homes, their episodes and random generators.

    A copy has a simulator of its own and goes on as the original does. A copy of an environment
    with a caller's simulator is refused: nobody but the caller knows how that was made.
    """

    batch: SkillBatch
    source: StartSource
    closed: bool
    brought: bool  # whether the simulator is a caller's

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, with snapshots in place of the homes.

        Raises:
            TypeError: the simulator is a caller's, or closed.
        """
        if self.brought or self.closed:
            why = "has a simulator of the caller's" if self.brought else "is closed"
            raise TypeError(
                f"environment: it {why} and cannot be copied; snapshot() keeps the state of a "
                "home, restore() puts another environment into it"
            )
        batch, attributes = self.batch, dict(self.__dict__)
        known = [env for env in range(batch.num_envs) if batch.episodes[env] is not None]
        frozen = {env: batch.snapshot(env) for env in known}
        del attributes["source"]  # may hold open files
        return {**attributes, "batch": (batch.options, batch.num_envs, frozen)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes homes anew and puts them into the frozen states.

        Raises:
            UserError: the snapshots are of another engine or version of the task.
        """
        options, num_envs, frozen = state["batch"]
        self.__dict__.update(state)
        self.batch, self.source = SkillBatch(options, options.simulator(num_envs)), options.source()
        for env, snapshot in frozen.items():
            self.batch.restore(env, snapshot)
