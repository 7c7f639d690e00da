import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_house import PACKAGES, ROOT

import tpsrl


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the files from which a wheel is built."""
    copy = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, copy / package, ignore=ignore)
    # The wheel must contain any policy in the folder, so another one is added.
    for kind in ("safetensors", "md"):
        (copy / "skills" / "pretrained" / f"another.{kind}").write_bytes(b"policy")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(source / "dist")]
    run([sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(source)], source)
    (path,) = (source / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bare environment outside the repository with the wheel installed.

    The environment sees the dependencies of the environment that runs the tests, but not the tpsrl
    installed there: an editable install consists of a .pth file, and Python ignores .pth files in
    folders that are themselves added by a .pth file.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    run([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    options = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    run([sys.executable, "-m", "pip", *options, str(wheel)], folder)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(folders)) + "\n")
    for package in PACKAGES:  # copies the compiled cache, which takes a minute to build
        for cached in (ROOT / package).rglob("*.nb[ic]"):
            place = site / cached.relative_to(ROOT)
            place.parent.mkdir(exist_ok=True)
            shutil.copy(cached, place)
    return folder


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Runs a command in a folder, without this process's Python variables; returns its output."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "NUMBA_CACHE_DIR", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_contains_every_file_of_the_packages(source: Path, wheel: Path) -> None:
    paths = [path for package in PACKAGES for path in (source / package).rglob("*")]
    files = {path.relative_to(source).as_posix() for path in paths if path.is_file()}
    assert {".py", ".yaml", ".pddl", ".gz", ".safetensors", ".md"} <= {
        Path(name).suffix for name in files
    }
    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_contains_only_the_packages_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops == {*PACKAGES, info}
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"} <= names


def test_the_installed_command_prints_its_version(elsewhere: Path) -> None:
    printed = run([elsewhere / "venv" / "bin" / "tpsrl", "--version"], elsewhere)
    assert printed == f"tpsrl {tpsrl.__version__}\n"


def test_packages_are_imported_from_the_installed_wheel(elsewhere: Path) -> None:
    code = f"""
import importlib, pathlib
for name in {PACKAGES}:
    print(pathlib.Path(importlib.import_module(name).__file__).parents[1])
"""
    printed = run([elsewhere / "venv" / "bin" / "python", "-c", code], elsewhere)
    (site,) = set(printed.splitlines())
    assert Path(site).is_relative_to(elsewhere)


def test_the_installed_package_plans(elsewhere: Path) -> None:
    printed = run([elsewhere / "venv" / "bin" / "tpsrl", "plan", "set_table"], elsewhere)
    assert "open" in printed and "stage" in printed


def test_the_installed_package_evaluates_and_makes_environments(elsewhere: Path) -> None:
    tpsrl_, python = (elsewhere / "venv" / "bin" / name for name in ("tpsrl", "python"))
    few = ["num_episodes=1", "processes=1", "videos=1", "analysis_episodes=0"]
    few += ["protocol.limits.episode_steps=40"]
    run([tpsrl_, "eval", "set_table", *few], elsewhere)
    files = {path.name for path in (elsewhere / "out" / "set_table").iterdir()}
    assert {"report.json", "report.html", "config.yaml", "videos"} <= files
    code = """
import gymnasium, skills.gym
env = gymnasium.make("tpsrl/Pick-v0", num_objects=12, num_episodes=1)
env.reset(seed=0)
env.step(env.action_space.sample())
"""
    run([python, "-c", code], elsewhere)
