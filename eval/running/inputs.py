"""Everything that the results of an evaluation depend on, in one digest."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tpsrl
from skills.registry import ENTRY_POINT
from tpsrl import config, sim
from tpsrl.errors import RunError
from tpsrl.runtime import files, shadowing

# Beside those of the engine.
_LIBRARIES = ("numba", "numpy", "scipy", "torch")
_REPORTED = ("numba", "numpy", "torch")  # by which figures may differ


def digest(settings: Any, dataset: str, read: Iterable[Path] = ()) -> str:
    """The same for two evaluations only if each gives the results of the other.

    Args:
        settings: of the run; where it writes and with how many processes does not count
        dataset: a digest of its episodes
        read: the files that it reads beside them, checkpoints for example
    """
    named = ",".join(filter(None, (settings.skill_modules, settings.encoder_modules)))
    modules = [_file_of(name.strip()) for name in named.split(",") if name.strip()]
    what = {
        "settings": config.to_yaml(dataclasses.replace(settings, out=None, processes=0)),
        "dataset": dataset,
        "files": [_of_file(path) for path in (*read, *filter(None, modules))],
        "version": tpsrl.__version__,
        "code": _code(),
        "python": platform.python_version(),
        "libraries": list(_versions(settings, _LIBRARIES).values()),
        "skills": sorted(_installed_skills()),
    }
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def versions(settings: Any) -> dict[str, str]:
    """The versions of the libraries by which the figures of a run's report may differ."""
    return _versions(settings, _REPORTED)


def _versions(settings: Any, others: Iterable[str]) -> dict[str, str]:
    found = sim.versions(settings.engine, settings.habitat)
    return found | {name: importlib.metadata.version(name) for name in others}


def check_unchanged(before: str, after: str) -> None:
    """Refuses results that were got by one state of the files that were read, or by another.

    Raises:
        RunError: the digests of before and after a run differ.
    """
    if before != after:
        raise RunError(
            "a checkpoint or another input file was replaced during the run; run the same command "
            "again, on a copy of the file if it may change again"
        )


def _of_file(path: Path) -> str:
    with files.plain(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file_of(name: str) -> Path | None:
    """The file of a module that a setting names by its path or its dotted name."""
    if name.endswith(".py"):
        return Path(name)
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin)


@functools.cache
def _code() -> str:
    """A digest of these packages, with their settings and data."""
    root = Path(tpsrl.__file__).parents[1]
    found = hashlib.sha256()
    for package in ("tpsrl", *shadowing.NAMES):
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(root)} {_of_file(path)}\n".encode())
    return found.hexdigest()


def _installed_skills() -> Iterable[str]:
    """The packages from which skills come by themselves, with their versions."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINT):
        if point.dist is not None:
            yield f"{point.dist.name} {point.dist.version}"
