"""The user's own modules, which register skills or encoders when they are imported.

A setting names them (`skill_modules=my_skill.py`), and an environment variable passes them on to
worker processes.
"""

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class UserModules:
    """Modules named by one setting."""

    setting: str
    variable: str  # environment variable that passes the modules on
    noun: str  # kind of object that they register, for messages

    def load(self, names: str, registered: Callable[[], Mapping[str, str]]) -> str:
        """Imports modules, in this process and in every worker process started later.

        Args:
            names: dotted names, found on Python's path or in the working directory, or paths of
                files that end in .py; separated by commas
            registered: returns the registered names, each with the name of the registering module

        Returns:
            `names` with absolute paths, valid in any directory.

        Raises:
            UserError: a module cannot be imported, or registers nothing.
        """
        whole = []
        for name in filter(None, (part.strip() for part in names.split(","))):
            before = registered()
            module = import_named(self.setting, name).__name__
            after = registered()
            # A module that was imported earlier does not register again.
            if after == before and module not in after.values():
                raise UserError(f"{self.setting}: {name} registers no {self.noun}")
            path = Path(name)
            whole.append(os.path.realpath(path) if path.suffix == ".py" else name)
        os.environ[self.variable] = ",".join(dict.fromkeys([*self._passed_on(), *whole]))
        return ",".join(whole)

    def load_passed_on(self) -> None:
        """Imports the modules that were loaded in the parent process.

        Raises:
            UserError: a module cannot be imported.
        """
        for name in self._passed_on():
            import_named(self.setting, name)

    def _passed_on(self) -> list[str]:
        return [name for name in os.environ.get(self.variable, "").split(",") if name]


def import_named(setting: str, name: str) -> ModuleType:
    """Imports a module by its dotted name, or a file by its path; `setting` is named in messages.

    Raises:
        UserError: the module cannot be imported, or another module has its name.
    """
    path = Path(name)
    folder, module = Path.cwd(), name
    if path.suffix == ".py":
        folder, module = Path(os.path.realpath(path)).parent, path.stem
        if not path.is_file():
            raise UserError(f"{setting}: there is no file {name}")
    if str(folder) not in sys.path:
        # Appended last, so that the user's modules do not shadow installed ones.
        sys.path.append(str(folder))
    try:
        found = importlib.import_module(module)
    except UserError:
        raise
    except SystemExit as end:
        raise UserError(f"{setting}: {name} exits Python ({end.code})") from None
    except Exception as error:
        raise UserError(f"{setting}: cannot import {name} ({error_text(error)})") from error
    where = getattr(found, "__file__", None) or "built into Python"
    if path.suffix == ".py" and not (os.path.exists(where) and path.samefile(where)):
        raise UserError(f"{setting}: {name}: another module is called {module} ({where})")
    return found


def error_text(error: Exception) -> str:
    """Returns the type and message of an exception from foreign code, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
