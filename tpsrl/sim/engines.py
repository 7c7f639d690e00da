"""Engines by name, and their capabilities, available without loading their libraries."""

import dataclasses
from collections.abc import Collection, Set
from typing import Literal

from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import MEASURES, Capabilities
from tpsrl.world.cameras import HEAD_DEPTH, PICTURES

EngineName = Literal["mujoco", "warp", "habitat"]


@dataclasses.dataclass(frozen=True, slots=True)
class EngineInfo:
    """Static description of an engine.

    `libraries` are the packages whose versions may affect the engine's results.
    """

    capabilities: Capabilities
    libraries: tuple[str, ...]


_EMBEDDED = Capabilities(
    exact_snapshots=True,
    colour=True,
    device="cpu",
    measures=frozenset(MEASURES),
    shapes=True,
    cameras=frozenset(PICTURES),
)

ENGINES: dict[str, EngineInfo] = {
    "mujoco": EngineInfo(_EMBEDDED, ("mujoco",)),
    "warp": EngineInfo(
        dataclasses.replace(_EMBEDDED, exact_snapshots=False),
        ("mujoco", "mujoco-warp", "warp-lang"),
    ),
    "habitat": EngineInfo(
        Capabilities(
            exact_snapshots=False,
            colour=True,
            device="cpu",
            measures=frozenset({"laser", "motion"}),
            shapes=False,
            cameras=frozenset({HEAD_DEPTH}),
        ),
        ("habitat", "habitat_sim"),
    ),
}


def info(engine: str) -> EngineInfo:
    """Returns the description of an engine.

    Raises:
        UserError: the engine is unknown; names the nearest.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    return ENGINES[engine]


def require_snapshots(engine: str, what: str) -> None:
    """Checks that an engine can take exact snapshots.

    Args:
        engine: its name
        what: the feature that needs snapshots, for the message

    Raises:
        UserError: the engine cannot take exact snapshots.
    """
    if not info(engine).capabilities.exact_snapshots:
        able = sorted(name for name, one in ENGINES.items() if one.capabilities.exact_snapshots)
        raise UserError(
            f"engine: {what} needs exact snapshots, which '{engine}' cannot take; "
            f"use engine={' or '.join(able)}"
        )


def require_measures(engine: str, wanted: Set[str], key: str, nearest: str) -> None:
    """Checks that an engine provides measurements.

    Args:
        engine: its name
        wanted: entries of `tpsrl.sim.base.MEASURES`
        key: the option that needs them, for the message
        nearest: a value of this option that every engine can provide, for the message

    Raises:
        UserError: some are not provided; names them.
    """
    lacking = sorted(wanted - info(engine).capabilities.measures)
    if lacking:
        raise UserError(
            f"{key}: engine '{engine}' does not measure {', '.join(lacking)}; nearest: {nearest}"
        )


def require_object_margin(engine: str, key: str = "object_margin") -> None:
    """Checks that an engine can let objects appear nearer to the hand (`tpsrl.sim.make`).

    Args:
        engine: its name
        key: the option that needs it, for the message

    Raises:
        UserError: the engine cannot.
    """
    if engine != "mujoco":
        raise UserError(f"{key}: engine={engine} has none; nearest: 0")


def require_cameras(engine: str, wanted: Collection[str]) -> None:
    """Checks that an engine takes pictures of the given names.

    Args:
        engine: its name
        wanted: entries of `tpsrl.world.cameras.PICTURES`

    Raises:
        UserError: a picture is not provided; names the picture and those that are.
    """
    has = info(engine).capabilities.cameras
    for name in wanted:
        if name not in has:
            have = ", ".join(picture for picture in PICTURES if picture in has)
            raise UserError(f"cameras: engine '{engine}' has no {name}; it has {have}")
