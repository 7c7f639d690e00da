"""Checks of a Habitat installation, with the commands that install what is missing."""

import dataclasses

from tpsrl.errors import UserError
from tpsrl.sim.habitat import worker
from tpsrl.sim.habitat.connection import (
    INSTALL,
    INSTALL_LAB,
    Connection,
    data_folder,
    download,
)
from tpsrl.sim.habitat.settings import HabitatSettings

_SIM, _LAB = "0.3.3", "0.3"


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Result of one check: whether it passed, what was found, and the remedy."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def check(settings: HabitatSettings) -> list[Check]:
    """Checks interpreter, versions, datasets and rendering; changes and downloads nothing."""
    data = [
        Check(path, False, "missing", f"cd {data_folder(settings)} && {download(source)}")
        for path, source in sorted(worker.missing(str(data_folder(settings))).items())
    ]
    try:
        link = Connection(settings)
    except UserError as error:
        return [
            Check("habitat.python", False, str(error), f"{INSTALL}; then {INSTALL_LAB}"),
            *data,
        ]
    try:
        found = _versions(link.versions)
        drawn = _rendering(link, settings)
    finally:
        link.close()
    fine = [] if data else [Check("habitat.data", True, str(data_folder(settings)))]
    return [*found, *data, *fine, drawn]


def _versions(versions: dict[str, str]) -> list[Check]:
    sim, lab = versions["habitat_sim"], versions["habitat"]
    return [
        Check("python of Habitat", True, f"{versions['python']}, numpy {versions['numpy']}"),
        Check("habitat_sim", sim.startswith(_SIM), f"{sim} (needs {_SIM})", INSTALL),
        Check("bullet", versions["bullet"] == "True", versions["bullet"], INSTALL),
        Check("habitat-lab", lab.startswith(_LAB), f"{lab} (needs {_LAB})", INSTALL_LAB),
    ]


def _rendering(link: Connection, settings: HabitatSettings) -> Check:
    """Checks that an empty scene can be drawn on the GPU of the settings, or in software."""
    where = "software EGL" if settings.gpu < 0 else f"GPU {settings.gpu}"
    remedy = (
        "apt-get install libegl1 libgl1-mesa-dri"
        if settings.gpu < 0
        else "habitat.gpu=-1 renders in software; for the GPU, install its driver's EGL library"
    )
    try:
        link.ask({"ask": "draw", "gpu": settings.gpu})
    except Exception as error:  # also HomeLost: drivers may end the process in C++
        return Check("rendering", False, f"{where}: {error}", remedy)
    return Check("rendering", True, where)
