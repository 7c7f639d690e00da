"""Installs the peers into virtual environments, once."""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.peers import LIBRARIES, Library
from tpsrl.errors import RunError

ROOT = Path(__file__).resolve().parents[2]
# The version used by tpsrl in this comparison, and a build that is certain to run on CPUs.
TORCH = "torch==2.13.0"


def interpreter(name: str, folder: Path) -> Path:
    """Returns the Python of a library's virtual environment, which is created if missing.

    The environment is in `folder`/NAME. For tpsrl itself, returns the running Python.

    Raises:
        RunError: the installation failed; the message has the path of the log.
    """
    if name == "tpsrl":
        return Path(sys.executable)
    library, place = LIBRARIES[name], folder / name
    python = place / "bin" / "python"
    stamp = place / "installed.txt"
    wanted = "\n".join([TORCH, *library.bare, *library.packages]) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"{name}: installing into {place}, once", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}_install.log"
    with log.open("w") as output:
        for command in _commands(library, place, folder):
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
            if code:
                raise RunError(f"{name}: cannot be installed, see {log}")
    stamp.write_text(wanted)
    return python


def versions(name: str, python: Path) -> dict[str, str]:
    """Returns the versions of a library's main packages."""
    shown = LIBRARIES[name].shown
    code = "import sys, importlib.metadata as m; print(*[m.version(n) for n in sys.argv[1:]])"
    found = subprocess.run(
        [python, "-c", code, *shown], check=True, capture_output=True, text=True
    ).stdout.split()
    return dict(zip(shown, found, strict=True))


def _commands(library: Library, place: Path, folder: Path) -> list[list[str]]:
    """Returns the installation commands in order."""
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    fixed = folder / "torch.txt"
    fixed.write_text(TORCH + "\n")
    commands = [
        [sys.executable, "-m", "venv", str(place)],
        # Installed first and alone, so that no other package brings another build of torch.
        [*pip, "-c", str(ROOT / "constraints.txt"), TORCH],
        [*pip, "-c", str(fixed), *library.packages],
    ]
    if library.bare:
        commands.append([*pip, "--no-deps", *library.bare])
    return commands
