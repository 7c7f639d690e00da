"""Engines behind one protocol. Knows worlds, no skill."""

from tpsrl.sim import engines
from tpsrl.sim.base import Simulator


def make(
    engine: str = "mujoco",
    num_envs: int = 1,
    slots: int = 30,
    layout_set: str = "replica_cad",
    filter_base: bool = True,
) -> Simulator:
    """A simulator by the name of its engine.

    Args:
        engine: one of `tpsrl.sim.engines.ENGINES`.
        num_envs: homes that it holds.
        slots: objects that an episode may have, 12 or 30.
        layout_set: the apartments, as `tpsrl.world.layouts` names them.
        filter_base: keep the base's target on the free floor, as HAB's navmesh does.

    Raises:
        UserError: the engine, slots or layout set is unknown; names the nearest.
    """
    engines.info(engine)
    # An engine's libraries load only where that engine is made.
    from tpsrl.sim.mujoco_sim import MujocoSimulator

    return MujocoSimulator(num_envs, slots, layout_set, filter_base)


def stamp(engine: str = "mujoco") -> str:
    """What the snapshots of an engine say of it; those with another stamp do not fit.

    Raises:
        UserError: the engine is unknown; names the nearest.
    """
    engines.info(engine)
    from tpsrl.sim.mujoco_home import ENGINE

    return ENGINE
