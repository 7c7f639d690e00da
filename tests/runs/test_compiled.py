import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO, NamedTuple

import numba
import numpy as np
import pytest

from tpsrl.runtime.compiled import digest

ROOT = Path(__file__).parents[2]

MAIN = """
import home
print(home.answer(10.0), sum(home.answer.stats.cache_hits.values()))
"""
HOME = """
from parts.sizes import WIDTH
from parts.work import twice
from tpsrl.runtime.compiled import njit

@njit(cache=True)
def answer(x):
    return twice(x) + WIDTH
"""
SIZES = """
WIDTH = 0.0
OFFSET = 0.0
"""
WORK = """
from parts import sizes
from tpsrl.runtime.compiled import njit

@njit(cache=True)
def twice(x):
    return 2.0 * x + offset()

@njit(cache=True)
def offset():
    return sizes.OFFSET
"""


class Home:
    """Package with compiled functions in several files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stderr = folder, ""

    def write(self) -> None:
        (self.folder / "parts").mkdir()
        for name, text in {
            "main.py": MAIN,
            "home.py": HOME,
            "parts/__init__.py": "",
            "parts/sizes.py": SIZES,
            "parts/work.py": WORK,
        }.items():
            (self.folder / name).write_text(text)

    def run(self, first: str = "", **variables: str) -> tuple[float, int]:
        """Returns the function's value and cache hits, from a fork of this process.

        The fork, in which numba is already imported, executes `first` before.
        """
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if not child:
                self._become(first, variables, out, err)
            _, status = os.waitpid(child, 0)
            out.seek(0), err.seek(0)
            self.stderr = err.read()
            assert status == 0, self.stderr
            return _answer(out.read())

    def run_afresh(self, **variables: str) -> tuple[float, int]:
        """Returns the same from a new process that runs `python main.py`."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # Python does not notice a file that is written twice within a second.
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        }
        command = [sys.executable, str(self.folder / "main.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return _answer(done.stdout)

    def _become(self, first: str, variables: dict[str, str], out: IO[str], err: IO[str]) -> None:
        """Runs the package in the forked process and exits."""
        sys.stdout, sys.stderr = out, err
        code = 1
        try:
            os.environ |= variables
            numba.config.reload_config()
            tempfile.tempdir = None  # forces a new lookup
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(self.folder))
            exec(first)
            runpy.run_path(str(self.folder / "main.py"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            out.flush(), err.flush()
            os._exit(code)

    def change(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def cached(self) -> set[str]:
        return {path.name for path in self.folder.rglob("*.nb[ic]")}


def _answer(printed: str) -> tuple[float, int]:
    value, hits = printed.split()
    return float(value), int(hits)


@pytest.fixture(scope="module")
def compiled_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    home.write()
    assert home.run() == (20.0, 0)
    return home


@pytest.fixture
def home(compiled_home: Home, tmp_path: Path) -> Home:
    """Copy of the package with compiled code in its cache."""
    return Home(shutil.copytree(compiled_home.folder, tmp_path / "home"))


# Settings of a machine where neither the installation nor the user's home is writable.
READ_ONLY = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}


def test_without_a_writable_folder_code_is_cached_in_a_temporary_folder(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    home.folder.mkdir()
    home.write()
    place = tmp_path / f"tpsrl_compiled_{os.getuid()}"
    command = "from tpsrl.runtime import temporaries as t; t._LONGEST = 999; own = t.own()"
    for hits in (0, 1):  # in a command that deletes its own temporary files
        first = f"{command}; own.__enter__()"
        assert home.run(first, TMPDIR=str(tmp_path), **READ_ONLY) == (20.0, hits)
        assert home.stderr.startswith(f"tpsrl: compiled code is cached in {place}, since neither ")
        assert home.stderr.count("\n") == 1
    assert place.stat().st_mode & 0o777 == 0o700 and not home.cached()
    place.chmod(0o777)  # other users may have written to the folder
    assert home.run(TMPDIR=str(tmp_path), **READ_ONLY) == (20.0, 0)
    assert f"cached in {place}_" not in home.stderr and f"{place}," not in home.stderr
    chosen = tmp_path / "chosen"
    assert home.run(NUMBA_CACHE_DIR=str(chosen), **READ_ONLY) == (20.0, 0)
    assert home.stderr == "" and list(chosen.rglob("*.nbi"))


def test_the_cache_of_a_read_only_installation_is_used(home: Home, tmp_path: Path) -> None:
    locked = "import os; os.access = lambda *_, **__: False"
    assert home.run(locked, TMPDIR=str(tmp_path), **READ_ONLY) == (20.0, 1)
    assert home.run(TMPDIR=str(tmp_path), **READ_ONLY) == (20.0, 0)


@pytest.mark.parametrize(
    ("name", "old", "new", "value"),
    [
        ("parts/sizes.py", "WIDTH = 0.0", "WIDTH = 1.0", 21.0),
        ("parts/work.py", "2.0 * x", "3.0 * x", 30.0),
        ("parts/sizes.py", "OFFSET = 0.0", "OFFSET = 1.0", 21.0),
    ],
    ids=["constant", "callee", "constant of a callee's callee"],
)
def test_a_change_in_another_file_causes_recompilation(
    name: str, old: str, new: str, value: float, home: Home
) -> None:
    before = home.cached()
    home.change(name, old, new)
    assert home.run() == (value, 0)
    assert len(home.cached()) == len(before) > 0  # outdated entries are deleted


def test_unchanged_code_is_cached_despite_unrelated_changes(home: Home) -> None:
    home.change("home.py", "from parts.work", "# A comment moves the lines.\nfrom parts.work")
    home.change("parts/sizes.py", "WIDTH = 0.0", "OTHER = 3.0\nWIDTH = 0.0")
    assert home.run_afresh(PYTHONHASHSEED="7") == (20.0, 1)


@pytest.mark.parametrize("left", [0, 40])
def test_a_truncated_cache_is_rebuilt(left: int, home: Home) -> None:
    for path in home.folder.rglob("*.nbi"):
        os.truncate(path, left)
    assert home.run() == (20.0, 0)
    assert home.run() == (20.0, 1)


def test_the_cache_is_in_the_folder_of_numba_cache_dir(home: Home, tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere"
    assert home.run(NUMBA_CACHE_DIR=str(kept)) == (20.0, 0)
    assert home.run(NUMBA_CACHE_DIR=str(kept)) == (20.0, 1)
    assert list(kept.rglob("home.answer.*.nbi"))


class Point(NamedTuple):
    x: float
    y: float


def module(**values: object) -> ModuleType:
    made = ModuleType("made")
    vars(made).update(values)
    return made


def digest_of(code: str, options: dict[str, object] | None = None, **read: object) -> str:
    """Returns the digest of the function `f` defined by some code that reads given variables."""
    exec(code, read)
    return digest(numba.njit(**(options or {}))(read["f"]))


def reading(code: str) -> Callable[[object], str]:
    """Maps a value of `a` to the digest of a function that returns the expression `code`."""
    return lambda a: digest_of(f"def f(x):\n    return {code}", a=a)


def calling(code: str) -> str:
    """Returns the digest of a function that calls the function `f` of some code."""
    called: dict[str, object] = {}
    exec(code, called)
    return reading("a(x)")(numba.njit(called["f"]))


@pytest.mark.parametrize(
    ("code", "one", "other"),
    [
        ("x + a", 1, 2),
        ("x + a", 1, 1.0),
        ("x + a", 1.0, np.float64(1.0)),
        ("x + a", 0.1, 0.1 + 1e-17 + 2e-17),
        ("x + a[0]", (1, (2, 3)), (1, (2, 4))),
        ("x + a.y", Point(1, 2), Point(1, 3)),
        ("x + a[0]", np.zeros(3), np.array([0.0, 0.0, 1.0])),
        ("x + a[0]", np.zeros(3), np.zeros(4)),
        ("x + a[0]", np.zeros(2, np.float32), np.zeros(2, np.int32)),
        ("x + a[0, 0]", np.zeros((2, 2)), np.asfortranarray(np.zeros((2, 2)))),
        ("x + a.b", module(b=1), module(b=2)),
        ("x + a.b.c", module(b=module(c=1)), module(b=module(c=2))),
        ("a(x)", math.sin, math.cos),
        ("a(x)", np.sin, np.cos),
        ("a.sum(x)", np, module(sum=np.max)),
        ("(lambda y: y + a)(x)", 1, 2),
    ],
)
def test_the_digest_depends_on_the_values_that_a_function_reads(
    code: str, one: object, other: object
) -> None:
    of = reading(code)
    assert of(one) != of(other)
    assert of(one) == reading(code)(one)


def test_the_digest_depends_on_the_code_and_values_of_callees() -> None:
    codes = [
        "def f(x):\n    return x",
        "def f(x):\n    return -x",
        "def f(x):\n    return x + 1",
        "def f(x):\n    return x + 2",
        "def f(x, y=1):\n    return x + y",
        "def f(x, y=2):\n    return x + y",
        "y = 1\ndef f(x):\n    return x + y",
        "y = 2\ndef f(x):\n    return x + y",
    ]
    assert len({calling(code) for code in codes}) == len(codes)


def test_the_digest_depends_on_closures_and_options() -> None:
    code = "def outer(y):\n    def f(x):\n        return x + y\n    return f\nf = outer({})"
    inside = [digest_of(code.format(y)) for y in (1, 2)]
    plain = "def f(x):\n    return x"
    options: list[dict[str, object]] = [{}, {"fastmath": True}, {"fastmath": {"nsz", "nnan"}}]
    optioned = [digest_of(plain, given) for given in options]
    assert len({*inside, *optioned}) == 5


def test_the_digest_ignores_line_numbers_and_unread_variables() -> None:
    code = "def f(x):\n    return x + a"
    assert digest_of(code, a=1) == digest_of(f"# a comment\n\n{code}", a=1, b=2)


def test_functions_that_call_each_other_have_a_digest() -> None:
    def digest_with(step: int) -> str:
        code = "def g(x):\n    return f(x - step)\ndef f(x):\n    return g(x) if x > 0 else x"
        both: dict[str, object] = {"step": step}
        exec(code, both)
        both["f"], both["g"] = numba.njit(both["f"]), numba.njit(both["g"])
        return digest(both["f"])

    assert digest_with(1) == digest_with(1) != digest_with(2)


@pytest.mark.parametrize("value", [[0.0], {1: 2}, object(), module(), np.array([None])])
def test_values_without_a_digest_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"reads a, a .*, cannot be cached"):
        reading("a")(value)


def test_only_the_compiled_module_imports_numba() -> None:
    packages = ("tpsrl", "skills", "planner", "eval")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    users = {path.name for path in sources if re.search(r"(import|from) numba", path.read_text())}
    assert users == {"compiled.py"}
