"""Functions compiled by numba, with a cache that detects every change of their dependencies.

numba keeps machine code on disk and drops it when the file of the function changes. However, the
values of the constants that a function reads and the functions that it calls are compiled into its
machine code as well, from whatever file they come. Here the names of the cached files contain a
digest of all these dependencies, so that outdated machine code is not found.
"""

import contextlib
import dis
import functools
import glob
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.dispatcher import Dispatcher

from tpsrl.runtime import notes, temporaries

_UNFINISHED_S = 600.0  # older temporary files were left by killed processes
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Functions and types of these modules are identified by name: they change only with a version.
_LIBRARIES = sys.stdlib_module_names | {"numba", "numpy"}


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function as `numba.njit` does, but with `Cache` as the cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(**options)(function)
        keeps = isinstance(compiled, Dispatcher)  # False with NUMBA_DISABLE_JIT
        if cache and keeps:
            if not isinstance(compiled._cache, NullCache):
                raise RuntimeError(f"numba {numba.__version__} has an unknown kind of cache")
            with contextlib.suppress(_NoPlaceError):
                compiled._cache = Cache(compiled)
        return compiled

    return decorate


class _NoPlaceError(Exception):
    """There is no writable folder for machine code."""


class Cache(FunctionCache):
    """Cache of one function's machine code, in numba's folder, under the function's digest.

    The folder is `NUMBA_CACHE_DIR` if set, else the `__pycache__` beside the function, else the
    user's cache folder, else a folder among the temporary files. If an installation is read-only,
    the machine code in its `__pycache__` is still used.

    Saving removes the files of other digests, so that the folder does not grow with every change.
    The digest is computed at the first call, because a function may use others that are defined
    below it.
    """

    def __init__(self, compiled: Dispatcher) -> None:
        beside = str(Path(compiled.py_func.__code__.co_filename).with_name("__pycache__"))
        homeless = os.path.expanduser("~") == "~" and not numba.config.CACHE_DIR
        if homeless and not os.access(Path(beside).parent, os.W_OK):
            _keep_among_temporaries()  # numba would make a folder called "~"
        try:
            super().__init__(compiled.py_func)
        except RuntimeError:  # no locator available
            _keep_among_temporaries()
            super().__init__(compiled.py_func)
        self._places = [self.cache_path]
        if beside != self.cache_path and not os.access(beside, os.W_OK):
            self._places.insert(0, beside)
        self._compiled = compiled

    @functools.cached_property
    def _digest(self) -> str:
        return digest(self._compiled)

    @functools.cached_property
    def _base(self) -> str:
        """File names up to the digest."""
        code = self._compiled.py_func.__code__
        name = f"{Path(code.co_filename).stem}.{code.co_qualname}".translate({60: None, 62: None})
        return f"{name}.{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}-"

    def _open(self, place: str) -> None:
        self._cache_file = IndexDataCacheFile(
            cache_path=place,
            filename_base=self._base + self._digest[:16],
            source_stamp=self._digest,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Loads the machine code for argument types; returns None if there is none."""
        for place in self._places:
            self._open(place)
            try:
                found = super().load_overload(sig, target_context)
            except Exception:  # unpickling a truncated file may raise any exception
                found = None
                with contextlib.suppress(OSError):
                    os.unlink(self._cache_file._index_path)
            if found is not None:
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Saves the machine code for argument types; a full or read-only disk is ignored."""
        self._open(self.cache_path)
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)
        own = glob.escape(os.path.join(self.cache_path, self._base))
        for path in glob.glob(f"{own}*.nb[ic]"):
            if not os.path.basename(path).startswith(self._base + self._digest[:16]):
                with contextlib.suppress(OSError):  # another process may have removed it already
                    os.unlink(path)
        for path in glob.glob(f"{own}*.nb[ic].tmp.*"):  # left by killed processes
            with contextlib.suppress(OSError):
                if time.time() - os.path.getmtime(path) > _UNFINISHED_S:
                    os.unlink(path)


def _keep_among_temporaries() -> None:
    """Moves the machine code of this process and its children to a folder of temporary files.

    Raises:
        _NoPlaceError: that folder cannot be written either.
    """
    try:
        # Cached code is executed, so no other user may write into this folder.
        folder = temporaries.lasting("tpsrl_compiled")
    except OSError:
        _tell("compiled code cannot be cached, and every process compiles it again")
        raise _NoPlaceError from None
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(folder)
    _tell(f"compiled code is cached in {folder}")


@functools.cache
def _tell(what: str) -> None:
    why = "neither the installation nor the user's cache folder is writable"
    choose = "set NUMBA_CACHE_DIR to a folder of your choice"
    notes.say(f"{what}, since {why}; {choose}")


def digest(compiled: Dispatcher) -> str:
    """Returns a digest of all that determines a function's machine code, except argument types.

    The digest covers the function's code and options, the values of the global and closure
    variables that it reads, and the same of the functions that it calls.

    Raises:
        TypeError: the function reads a value of a type whose changes cannot be detected.
    """
    found = hashlib.sha256()
    for part in _Parts().of_function(compiled):
        found.update(repr(part).encode())
    return found.hexdigest()


class _Parts:
    """Lists the dependencies of functions, each function once."""

    def __init__(self) -> None:
        self._seen: list[Callable[..., Any]] = []

    def of_function(self, compiled: Dispatcher) -> Iterator[Any]:
        function = compiled.py_func
        if function in self._seen:
            yield "again", self._seen.index(function)
            return
        self._seen.append(function)
        options = {**compiled.targetoptions, "locals": compiled.locals}
        for key, option in sorted(options.items()):
            yield key, sorted(option) if isinstance(option, set | frozenset) else option
        yield from _instructions(function.__code__)
        yield from self.of_value("defaults", function.__defaults__)
        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for names in _reads(function.__code__):
            name = ".".join(names)
            if names[0] in closure:
                yield from self.of_value(name, _last(closure[names[0]].cell_contents, names))
            elif names[0] in function.__globals__:
                yield from self.of_value(name, _last(function.__globals__[names[0]], names))
            else:  # a builtin, or a variable of an enclosing function
                yield name

    def of_value(self, name: str, value: Any) -> Iterator[Any]:
        yield name, type(value).__name__
        if isinstance(value, Dispatcher):
            yield from self.of_function(value)
        elif isinstance(value, _PLAIN):
            yield value
        elif isinstance(value, tuple):
            for field, item in zip(
                getattr(value, "_fields", range(len(value))), value, strict=True
            ):
                yield from self.of_value(f"{name}.{field}", item)
        elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            yield value.dtype.descr, value.shape, value.strides, value.tobytes()
        elif _of_library(value):
            yield getattr(value, "__module__", None), value.__name__
        else:
            kind = type(value).__name__
            raise TypeError(f"compiled code that reads {name}, a {kind}, cannot be cached")


def _last(value: Any, names: tuple[str, ...]) -> Any:
    """Returns the attribute of `value` that `names` refers to, following modules only."""
    for name in names[1:]:
        if not isinstance(value, ModuleType):
            break
        value = getattr(value, name)
    return value


def _of_library(value: Any) -> bool:
    owner = type(value) if isinstance(value, np.ufunc) else value
    module = str(getattr(owner, "__module__", None))
    return callable(value) and module.partition(".")[0] in _LIBRARIES


def _instructions(code: CodeType) -> Iterator[Any]:
    """Yields instructions and constants, including those of nested functions."""
    yield code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        elif isinstance(constant, frozenset):
            yield sorted(map(repr, constant))
        else:
            yield constant


@functools.cache
def _reads(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Returns the dotted names that code reads from outside: ("math", "pi") for `math.pi`."""
    found: list[tuple[str, ...]] = []
    going_on = False
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
            found.append((step.argval,))
            going_on = True
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and going_on:
            found[-1] = (*found[-1], step.argval)
        elif step.opname != "EXTENDED_ARG":
            going_on = False
    inside = (_reads(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*found, *(names for reads in inside for names in reads)]))
