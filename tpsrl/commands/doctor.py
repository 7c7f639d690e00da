"""`tpsrl doctor`: shows what this machine can run, and what is missing."""

import dataclasses
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable

import rich.box
from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.runtime import machine
from tpsrl.sim.engines import EngineName
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.sim.warp import checks

DESCRIPTION = """Shows which parts of tpsrl this machine can run, and missing requirements. The exit
code is 0 if the built-in engine can run, 1 otherwise. With engine=habitat, checks the requirements
of that engine instead, and prints the commands that install missing ones, without running them."""


_LOOK = "tpsrl doctor engine=habitat habitat.python=PATH habitat.data=DIR"


@dataclasses.dataclass(frozen=True, slots=True)
class DoctorSettings:
    """Settings of `tpsrl doctor`."""

    engine: EngineName = config.option("mujoco", "simulation engine")
    habitat: HabitatSettings = config.part(
        HabitatSettings, "paths and options of the engine habitat"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CheckResult:
    """One row of the table: name of the check, result, and remedy.

    `ok` is None for information only; `needed` means that the embedded engine cannot run without
    it.
    """

    name: str
    found: str
    ok: bool | None = None
    needed: bool = False
    remedy: str = ""


def run(settings: DoctorSettings) -> int:
    """Prints the table; returns 0 if the engine can run, else 1."""
    if settings.engine == "habitat":
        return _habitat(settings.habitat)
    findings = [*_machine(), *_packages(), *_abilities(), *_engines()]
    Console().print(_table(findings))
    broken = [f for f in findings if f.needed and f.ok is False]
    for finding in broken:
        print(f"missing: {finding.name}: {finding.remedy or finding.found}")
    print("the embedded engine cannot run" if broken else "the embedded engine can run")
    return 1 if broken else 0


def _habitat(settings: HabitatSettings) -> int:
    from tpsrl.sim.habitat import checks

    found = checks.check(settings)
    Console().print(_table([CheckResult(c.name, c.found, c.ok, True, c.remedy) for c in found]))
    lacking = [check for check in found if not check.ok]
    for check in lacking:
        print(f"missing: {check.name}: {check.remedy or check.found}")
    print(f"the engine habitat {'cannot' if lacking else 'can'} run")
    return 1 if lacking else 0


def _machine() -> list[CheckResult]:
    version = ".".join(map(str, sys.version_info[:3]))
    return [
        CheckResult(
            "python", version, sys.version_info >= (3, 11), True, "needs Python 3.11 or newer"
        ),
        CheckResult("cores", str(machine.cores())),
        CheckResult("memory", f"{machine.memory_gib():.1f} GiB"),
    ]


def _packages() -> list[CheckResult]:
    """Compares every declared dependency of tpsrl with the installed version."""
    requirements = [Requirement(r) for r in importlib.metadata.requires("tpsrl") or []]
    return [
        _package(r) for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})
    ]


def _package(requirement: Requirement) -> CheckResult:
    name, wanted = requirement.name, str(requirement.specifier)
    remedy = f"pip install '{name}{wanted}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return CheckResult(name, "not installed", False, True, remedy)
    fits = requirement.specifier.contains(version, prereleases=True)
    return CheckResult(name, f"{version} (needs {wanted})", fits, True, remedy)


def _abilities() -> list[CheckResult]:
    return [
        _attempt("physics", _try_physics, True, "reinstall mujoco"),
        _attempt(
            "compiled code cache", _try_numba, True, "set NUMBA_CACHE_DIR to a writable folder"
        ),
        _attempt("video encoder", _try_ffmpeg, False, "reinstall imageio-ffmpeg, or use videos=0"),
    ]


def _attempt(name: str, attempt: Callable[[], str], needed: bool, remedy: str) -> CheckResult:
    try:
        return CheckResult(name, attempt(), True, needed)
    except Exception as error:
        # Any error is a finding of this check, and must not stop the other checks.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return CheckResult(name, reason, False, needed, remedy)


def _try_physics() -> str:
    import mujoco

    ball = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(ball)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    if not data.qvel[2] < 0.0:
        raise RuntimeError("a ball in free fall did not fall")
    return f"MuJoCo {mujoco.__version__} steps"


def _try_numba() -> str:
    from tpsrl.runtime.compiled import njit

    @njit(cache=True)
    def half(value: float) -> float:
        return value / 2.0

    if half(3.0) != 1.5:
        raise RuntimeError("compiled code computes wrong results")
    return str(half.stats.cache_path)


def _try_ffmpeg() -> str:
    import imageio_ffmpeg

    from tpsrl.render.video import encoder

    program = encoder()
    command = [program, "-hide_banner", "-encoders"]
    encoders = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "libx264" not in encoders:
        raise RuntimeError(f"{program} has no libx264 encoder")
    return f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version().split('-')[0]} with libx264"


def _warp() -> CheckResult:
    if checks.missing():
        return CheckResult("engine warp", "not installed", remedy=checks.INSTALL)
    version = importlib.metadata.version("mujoco-warp")
    return CheckResult("engine warp", f"mujoco-warp {version}", True)


def _engines() -> list[CheckResult]:
    try:
        torch = CheckResult("torch (training)", importlib.metadata.version("torch"), True)
    except importlib.metadata.PackageNotFoundError:
        torch = CheckResult("torch (training)", "not installed", remedy="pip install torch")
    return [
        CheckResult("engine mujoco", "embedded, on the processor; needs no GL library", True),
        _warp(),
        CheckResult("engine habitat", "in your own Habitat environment", remedy=_LOOK),
        torch,
    ]


def _table(findings: list[CheckResult]) -> Table:
    marks = {True: "[green]ok[/green]", False: "[red]missing[/red]", None: ""}
    table = Table("", "found", "", "what to do", box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for finding in findings:
        remedy = "" if finding.ok else escape(finding.remedy)
        table.add_row(finding.name, escape(finding.found), marks[finding.ok], remedy)
    return table


COMMAND = Command(DESCRIPTION, DoctorSettings, run)
