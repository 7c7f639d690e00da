import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Python imports the first match on its path, so these shadow our packages. A folder without
# __init__.py is imported only if no entry of the path has a package or module of that name.
IN_THE_WAY = ["skills/__init__.py", "configs/__init__.py", "planner.py", "eval.py"]


def run(
    folder: Path, *arguments: str, installed: Path | None = ROOT
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def put(folder: Path, name: str) -> Path:
    """Writes a file into a folder and returns the path that an import would find."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("raise SystemExit('the wrong one was imported')\n")
    return path.parent if path.name == "__init__.py" else path


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_name_beside_the_script_that_shadows_ours_is_an_error(name: str, tmp_path: Path) -> None:
    path = put(tmp_path / "mine", name)
    (tmp_path / "mine" / "main.py").write_text("import tpsrl\n")
    done = run(tmp_path, "mine/main.py")
    assert done.returncode == 1
    package = name.partition("/")[0].removesuffix(".py")
    assert done.stderr.splitlines()[-1] == (
        f"tpsrl.runtime.shadowing.ShadowedError: '{path}' shadows tpsrl's own package "
        f"'{package}': rename it, or run from another directory"
    )


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_name_in_the_working_directory_that_shadows_ours_is_an_error(
    name: str, tmp_path: Path
) -> None:
    put(tmp_path, name)
    done = run(tmp_path, "-c", "import tpsrl")
    assert done.returncode == 1
    assert "tpsrl.runtime.shadowing.ShadowedError" in done.stderr


def test_the_error_is_an_import_error(tmp_path: Path) -> None:
    put(tmp_path, "eval.py")
    code = "try:\n    import tpsrl\nexcept ImportError as error:\n    print(error.name)"
    assert run(tmp_path, "-c", code).stdout == "eval\n"


@pytest.mark.parametrize("command", [["-m", "tpsrl"], ["-X", "dev", "-m", "tpsrl"], ["bin/tpsrl"]])
def test_the_command_reports_a_shadowed_package_in_one_line(
    command: list[str], tmp_path: Path
) -> None:
    put(tmp_path, "skills/__init__.py")
    if command == ["bin/tpsrl"]:  # like the script that an installer creates
        (tmp_path / "bin").mkdir()
        script = "from tpsrl.cli import main\nraise SystemExit(main())\n"
        (tmp_path / "bin" / "tpsrl").write_text(script)
        (tmp_path / "skills").rename(tmp_path / "bin" / "skills")
    done = run(tmp_path, *command, "--version")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tpsrl: error: '") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["skills/mine.yaml", "configs/mine.yaml", "evaluate.py"])
def test_files_that_do_not_shadow_our_packages_are_no_error(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    done = run(tmp_path, "-c", "import tpsrl, skills, configs; print(skills.__file__)")
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()) == ROOT / "skills" / "__init__.py"


def test_a_folder_that_replaces_a_missing_package_is_an_error(
    tmp_path: Path,
) -> None:
    installed = tmp_path / "installed"
    for package in ("tpsrl", "eval", "planner", "configs"):
        target = installed / package
        shutil.copytree(ROOT / package, target, ignore=lambda *_: {"__pycache__", "data"})
    put(tmp_path / "mine", "skills/notes.txt")
    # Runs without site-packages, where another tpsrl may be installed.
    done = run(tmp_path / "mine", "-S", "-c", "import tpsrl", installed=installed)
    assert done.returncode == 1
    assert f"'{tmp_path / 'mine' / 'skills'}' shadows" in done.stderr


def test_a_symbolic_link_to_our_package_is_accepted(tmp_path: Path) -> None:
    for package in ("tpsrl", "skills", "eval", "planner", "configs"):
        (tmp_path / package).symlink_to(ROOT / package)
    done = run(tmp_path, "-c", "import tpsrl", installed=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_check_does_not_import_the_packages() -> None:
    names = "('configs', 'eval', 'planner', 'skills')"
    code = f"import sys, tpsrl; print([name for name in {names} if name in sys.modules])"
    assert run(ROOT, "-c", code).stdout == "[]\n"
