"""Connection to one process of the user's Habitat interpreter."""

import contextlib
import functools
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tpsrl.errors import UserError
from tpsrl.sim.base import HomeLost
from tpsrl.sim.habitat import worker
from tpsrl.sim.habitat.settings import HabitatSettings

_LAST_LINES = 8  # of the process's log, in a message
_SHOWN_BYTES = 4000
_LOADING_S = 120.0  # shortest time limit for starting a process or loading a scene
_END_S = 5.0  # time limit for the end of a process
_HUNG = "Timeout ("  # start of faulthandler's output for a process that hangs
INSTALL = "conda install habitat-sim=0.3.3 withbullet headless -c conda-forge -c aihabitat"
INSTALL_LAB = "pip install habitat-lab"
DOWNLOAD = "python -m habitat_sim.utils.datasets_download --uids {source} --data-path data/"

Reply = tuple[dict[str, Any], dict[str, np.ndarray]]


class Connection:
    """A process of the Habitat interpreter, started on creation, for requests and replies.

    `versions` are those of Python, numpy, habitat and habitat_sim in the process.

    Raises:
        UserError: the process cannot be started or lacks packages; names what to install.
    """

    def __init__(self, settings: HabitatSettings) -> None:
        self._timeout_s = self._within_s = settings.timeout_s
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        program = [settings.interpreter(), worker.__file__, str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                program,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            raise UserError(f"habitat.python: cannot run {program[0]}: {error.strerror}") from None
        theirs.close()
        self._link = ours
        self.versions = self._check_protocol(program[0])

    def _check_protocol(self, program: str) -> dict[str, str]:
        try:
            header, _ = self.ask({"ask": "hello", "protocol": worker.PROTOCOL})
        except HomeLost as error:
            self.close()
            raise UserError(f"habitat.python: {program}: {error}") from None
        except UserError as error:
            self.close()
            raise UserError(
                f"habitat.python: {program}: {error}; there: {INSTALL}, then {INSTALL_LAB}"
            ) from None
        if header.get("protocol") != worker.PROTOCOL:
            self.close()
            raise UserError(
                f"habitat.python: {program}: its worker has protocol {header.get('protocol')}, "
                f"must have {worker.PROTOCOL}"
            )
        versions: dict[str, str] = header["versions"]
        return versions

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, header: dict[str, Any]) -> Reply:
        """Sends a request that may load data, and returns the reply; see `say` and `answer`."""
        self.say(header, within_s=max(self._timeout_s, _LOADING_S))
        return self.answer()

    def say(
        self,
        header: dict[str, Any],
        arrays: dict[str, np.ndarray] | None = None,
        within_s: float | None = None,
    ) -> None:
        """Sends a request, to which the process sends one reply.

        Args:
            header: the request, JSON types
            arrays: arrays by name
            within_s: time limit of the reply in seconds; by default `timeout_s` of the settings

        Raises:
            HomeLost: the process has ended.
        """
        self._within_s = self._timeout_s if within_s is None else within_s
        try:
            worker.send(self._link, {**header, "within_s": self._within_s}, arrays)
        except OSError:
            raise self._lost() from None

    def answer(self) -> Reply:
        """Returns the reply to the last request.

        Raises:
            UserError: the process refused the request.
            HomeLost: the request failed, the process has ended, or it exceeded the time limit and
                was killed.
        """
        # A process that hangs ends itself and logs where; a stopped process is killed here.
        self._link.settimeout(self._within_s + _END_S)
        try:
            header, arrays = worker.receive(self._link)
        except TimeoutError:
            self._process.kill()
            raise self._lost(silent=True) from None
        except (EOFError, OSError, ValueError):
            raise self._lost() from None
        if "refused" in header:
            raise UserError(header["refused"])
        if "failed" in header:
            raise HomeLost(f"Habitat: {header['failed']}{self._said()}")
        return header, arrays

    def _lost(self, silent: bool = False) -> HomeLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code, output = self._process.returncode, self._said()
        how = "closed its connection" if code is None else _end(code)
        if silent or _HUNG in output:
            how = f"did not respond for {self._within_s:g} s and was killed"
        return HomeLost(f"the Habitat process {how}{output}")

    def _said(self) -> str:
        """Returns the last lines of the process's log as the end of a message."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _SHOWN_BYTES))
        lines = self._log.read().decode(errors="replace").splitlines()
        shown = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
        return f"; its last lines: {' | '.join(shown)}" if shown else ""

    def kill(self) -> None:
        """Kills the process; a thread that waits for its reply gets `HomeLost`."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process; safe to call twice."""
        with contextlib.suppress(OSError):
            worker.send(self._link, {"ask": "close", "within_s": _END_S})
        self._link.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _end(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _environment() -> dict[str, str]:
    """Returns this process's environment, without variables that select our Python's packages."""
    own = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    variables = {name: value for name, value in os.environ.items() if name not in own}
    return {"MAGNUM_LOG": "quiet", "HABITAT_SIM_LOG": "quiet", **variables}


@functools.cache
def versions_of(settings: HabitatSettings) -> dict[str, str]:
    """Returns the versions of an interpreter's packages, from a process started for this.

    Raises:
        UserError: see `Connection`.
    """
    link = Connection(settings)
    link.close()
    return link.versions


def download(source: str) -> str:
    """Returns the command that downloads a dataset into `data/`."""
    return DOWNLOAD.format(source=source)


def data_folder(settings: HabitatSettings) -> Path:
    """Returns the absolute path of the folder that holds `data/`."""
    return Path(settings.data).expanduser().resolve()
