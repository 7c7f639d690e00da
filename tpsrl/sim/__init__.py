"""Physics engines behind one simulator interface, independent of skills."""

import importlib.metadata
from typing import TYPE_CHECKING

from tpsrl.errors import UserError
from tpsrl.sim import engines
from tpsrl.sim.base import Simulator
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.sim.warp import checks

if TYPE_CHECKING:
    from tpsrl.sim.batch.base import BatchSimulator


def make(
    engine: str = "mujoco",
    num_envs: int = 1,
    slots: int = 30,
    layout_set: str = "replica_cad",
    filter_base: bool = True,
    habitat: HabitatSettings | None = None,
    object_margin: float = 0.0,
) -> Simulator:
    """Creates a simulator.

    Args:
        engine: one of `tpsrl.sim.engines.ENGINES`.
        num_envs: number of homes.
        slots: maximum number of objects in an episode, 12 or 30.
        layout_set: name of a set of apartments in `tpsrl.world.layouts`.
        filter_base: whether to keep the base's target on the free floor, as HAB's navmesh does.
        habitat: settings of the engine `habitat`.
        object_margin: distance in metres by which loose objects other than the target appear nearer
            to the hand in `Simulator.clearance` and `neighbours`; 0 for engines other than mujoco.

    Raises:
        UserError: the engine, slots or layout set is unknown (names the nearest), the engine's
            packages are not installed, or it has no margin.
    """
    engines.info(engine)
    if object_margin:
        engines.require_object_margin(engine)
    if engine == "habitat":
        from tpsrl.sim.habitat.simulator import HabitatSimulator

        return HabitatSimulator(num_envs, slots, filter_base, habitat)
    if engine == "warp":
        checks.require()
        from tpsrl.sim.warp.simulator import WarpSimulator

        return WarpSimulator(num_envs, slots, layout_set, filter_base)
    # Imports are local so that only the libraries of the requested engine are loaded.
    from tpsrl.sim.mujoco_sim import MujocoSimulator

    return MujocoSimulator(num_envs, slots, layout_set, filter_base, object_margin)


def make_batch(
    engine: str = "mujoco",
    num_envs: int = 1,
    slots: int = 12,
    layout_set: str = "replica_cad",
    filter_base: bool = True,
) -> "BatchSimulator":
    """Creates a batch simulator, whose homes step together with tensors in and out.

    The arguments are those of `make`.

    Raises:
        UserError: as in `make`, or the engine cannot step homes together.
    """
    if engine == "habitat":
        raise UserError(
            "engine: 'habitat' has no batch simulator; use engine=mujoco or engine=warp"
        )
    if engine == "warp":
        checks.require()
        from tpsrl.sim.warp.batch import WarpBatch

        return WarpBatch(num_envs, slots, layout_set, filter_base)
    from tpsrl.sim.batch.looped import LoopedBatch

    return LoopedBatch(make(engine, num_envs, slots, layout_set, filter_base))


def stamp(engine: str = "mujoco") -> str:
    """Returns the stamp of an engine's snapshots; snapshots with another stamp do not restore.

    Raises:
        UserError: the engine is unknown; names the nearest.
    """
    if not engines.info(engine).capabilities.exact_snapshots:
        return f"{engine} (no exact snapshots)"
    from tpsrl.sim.mujoco_home import ENGINE

    return ENGINE


def versions(engine: str = "mujoco", habitat: HabitatSettings | None = None) -> dict[str, str]:
    """Returns the versions of an engine's libraries by name.

    Args:
        engine: one of `tpsrl.sim.engines.ENGINES`.
        habitat: settings of the Habitat installation to query, for the engine `habitat`.

    Raises:
        UserError: the engine is unknown (names the nearest) or not installed.
    """
    libraries = engines.info(engine).libraries
    if engine == "habitat":
        from tpsrl.sim.habitat.connection import versions_of

        found = versions_of(habitat or HabitatSettings())
        return {name: found[name] for name in libraries}
    if engine == "warp":
        checks.require()
    return {name: importlib.metadata.version(name) for name in libraries}
