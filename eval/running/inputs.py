"""Digest of all inputs that the results of an evaluation depend on."""

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

# In addition to those of the engine.
_LIBRARIES = ("numba", "numpy", "scipy", "torch")
_REPORTED = ("numba", "numpy", "torch")  # figures of a report may depend on these


def digest(settings: Any, dataset: str, read: Iterable[Path] = ()) -> str:
    """Returns a digest that is equal for two evaluations only if their results are interchangeable.

    Args:
        settings: of the run, of which the output folder and the number of processes are left out
        dataset: digest of the episodes
        read: other input files, for example checkpoints
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
    """Returns the versions of the libraries on which the figures of a report may depend."""
    return _versions(settings, _REPORTED)


def _versions(settings: Any, others: Iterable[str]) -> dict[str, str]:
    found = sim.versions(settings.engine, settings.habitat)
    return found | {name: importlib.metadata.version(name) for name in others}


def check_unchanged(before: str, after: str) -> None:
    """Checks that no input file was replaced during a run.

    Raises:
        RunError: the digests from before and after the run differ.
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
    """Returns the file of a module that a setting names by path or dotted name."""
    if name.endswith(".py"):
        return Path(name)
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin)


@functools.cache
def _code() -> str:
    """Returns a digest of the project's packages with their settings and data files."""
    root = Path(tpsrl.__file__).parents[1]
    found = hashlib.sha256()
    for package in ("tpsrl", *shadowing.NAMES):
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(root)} {_of_file(path)}\n".encode())
    return found.hexdigest()


def _installed_skills() -> Iterable[str]:
    """Yields name and version of each installed package that registers skills."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINT):
        if point.dist is not None:
            yield f"{point.dist.name} {point.dist.version}"
