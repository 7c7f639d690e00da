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
    """A package of its own, with compiled code that is made of several files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, ""

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
        """What the function returns in a fork of this process, and how often from the cache.

        The fork, which finds numba imported, executes `first` before.
        """
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if not child:
                self._become(first, variables, out, err)
            _, status = os.waitpid(child, 0)
            out.seek(0), err.seek(0)
            self.said = err.read()
            assert status == 0, self.said
            return _answer(out.read())

    def run_afresh(self, **variables: str) -> tuple[float, int]:
        """The same in a process of its own, as `python main.py` is."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # Python takes files for unchanged that are written twice in a second.
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        }
        command = [sys.executable, str(self.folder / "main.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return _answer(done.stdout)

    def _become(self, first: str, variables: dict[str, str], out: IO[str], err: IO[str]) -> None:
        """Is the process, and ends."""
        sys.stdout, sys.stderr = out, err
        code = 1
        try:
            os.environ |= variables
            numba.config.reload_config()
            tempfile.tempdir = None  # looked up again
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
    """A copy whose code is compiled."""
    return Home(shutil.copytree(compiled_home.folder, tmp_path / "home"))


# As where neither the installation nor the user's home can be written.
READ_ONLY = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}


def test_where_nothing_can_be_written_code_is_kept_among_the_temporary_files(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    home.folder.mkdir()
    home.write()
    place = tmp_path / f"tpsrl_compiled_{os.getuid()}"
    command = "from tpsrl.runtime import temporaries as t; t._LONGEST = 999; own = t.own()"
    for hits in (0, 1):  # in a command, whose own temporary files go with it
        first = f"{command}; own.__enter__()"
        assert home.run(first, TMPDIR=str(tmp_path), **READ_ONLY) == (20.0, hits)
        assert home.said.startswith(f"tpsrl: compiled code is cached in {place}, since neither ")
        assert home.said.count("\n") == 1
    assert place.stat().st_mode & 0o777 == 0o700 and not home.cached()
    place.chmod(0o777)  # now somebody else may have put something there
    assert home.run(TMPDIR=str(tmp_path), **READ_ONLY) == (20.0, 0)
    assert f"cached in {place}_" not in home.said and f"{place}," not in home.said
    chosen = tmp_path / "chosen"
    assert home.run(NUMBA_CACHE_DIR=str(chosen), **READ_ONLY) == (20.0, 0)
    assert home.said == "" and list(chosen.rglob("*.nbi"))


def test_an_installation_that_cannot_be_written_is_read(home: Home, tmp_path: Path) -> None:
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
def test_what_changes_in_another_file_is_compiled_anew(
    name: str, old: str, new: str, value: float, home: Home
) -> None:
    before = home.cached()
    home.change(name, old, new)
    assert home.run() == (value, 0)
    assert len(home.cached()) == len(before) > 0  # what was made of other code is gone


def test_unchanged_code_comes_from_the_cache_whatever_else_changes(home: Home) -> None:
    home.change("home.py", "from parts.work", "# A comment moves the lines.\nfrom parts.work")
    home.change("parts/sizes.py", "WIDTH = 0.0", "OTHER = 3.0\nWIDTH = 0.0")
    assert home.run_afresh(PYTHONHASHSEED="7") == (20.0, 1)


@pytest.mark.parametrize("left", [0, 40])
def test_a_cache_that_was_cut_off_is_made_anew(left: int, home: Home) -> None:
    for path in home.folder.rglob("*.nbi"):
        os.truncate(path, left)
    assert home.run() == (20.0, 0)
    assert home.run() == (20.0, 1)


def test_the_cache_lies_where_numba_is_told_to_keep_it(home: Home, tmp_path: Path) -> None:
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
    """The digest of the function `f` that some code defines, which reads these variables."""
    exec(code, read)
    return digest(numba.njit(**(options or {}))(read["f"]))


def reading(code: str) -> Callable[[object], str]:
    """Takes a value for `a`; the digest of a function that returns what `code` says."""
    return lambda a: digest_of(f"def f(x):\n    return {code}", a=a)


def calling(code: str) -> str:
    """The digest of a function that calls another one."""
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
def test_the_digest_tells_values_apart(code: str, one: object, other: object) -> None:
    of = reading(code)
    assert of(one) != of(other)
    assert of(one) == reading(code)(one)


def test_the_digest_tells_code_apart_down_to_what_the_callees_read() -> None:
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


def test_the_digest_tells_closures_and_options_apart() -> None:
    code = "def outer(y):\n    def f(x):\n        return x + y\n    return f\nf = outer({})"
    inside = [digest_of(code.format(y)) for y in (1, 2)]
    plain = "def f(x):\n    return x"
    options: list[dict[str, object]] = [{}, {"fastmath": True}, {"fastmath": {"nsz", "nnan"}}]
    optioned = [digest_of(plain, given) for given in options]
    assert len({*inside, *optioned}) == 5


def test_the_digest_does_not_see_where_code_stands_or_what_it_does_not_read() -> None:
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
def test_what_cannot_be_followed_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"reads a, a .*, cannot be cached"):
        reading("a")(value)


def test_no_module_goes_past_the_cache_that_notices_changes() -> None:
    packages = ("tpsrl", "skills", "planner", "eval")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    users = {path.name for path in sources if re.search(r"(import|from) numba", path.read_text())}
    assert users == {"compiled.py"}
