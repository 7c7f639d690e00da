"""Loggers of a training's numbers beside metrics.jsonl: TensorBoard, Weights & Biases, Trackio."""

import contextlib
import dataclasses
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import Json

DEFAULT, NONE = "tensorboard", "none"
TENSORBOARD = "tensorboard"  # folder of its event files within a training's
_SAY = threading.excepthook
_PROJECT = "tpsrl"  # of the services that group runs by project
_WANDB_RUN = "wandb_run"  # file in the training's folder with the id of the run


@dataclasses.dataclass(frozen=True, slots=True)
class LoggedRun:
    """The training that is logged.

    `out` is its folder, whose name is the run's; `resumed_at` is the step at which it resumes, 0
    for a new one; `settings` are those of the training.
    """

    out: Path
    resumed_at: int = 0
    settings: Json = dataclasses.field(default_factory=dict)


class Logger(Protocol):
    """Receives the numbers of one training."""

    def write(self, numbers: Mapping[str, float], steps: int) -> None:
        """Writes numbers by name, those of a part under `part/`, at `steps` steps of experience."""
        ...

    def close(self) -> None:
        """Writes buffered numbers and ends the run of the logger."""
        ...


def _say_of_threads(args: threading.ExceptHookArgs) -> None:
    """Reports exceptions of threads as Python does, except those of the writer of event files.

    An exception that ends the writer's thread, such as a full disk, is raised again when the next
    number is written.
    """
    if not type(args.thread).__module__.startswith("tensorboard."):
        _SAY(args)


class TensorBoard:
    """Event files in the training's folder; those after the step of a resumption are purged."""

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        threading.excepthook = _say_of_threads
        purge = run.resumed_at + 1 if run.resumed_at else None
        self._folder = run.out / TENSORBOARD
        with self._told():
            self._writer: Any = SummaryWriter(str(self._folder), purge_step=purge)

    def write(self, numbers: Mapping[str, float], steps: int) -> None:
        """See `Logger.write`.

        Raises:
            UserError: the files cannot be written.
        """
        with self._told():
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, steps)

    def close(self) -> None:
        """See `Logger.close`.

        Raises:
            UserError: the files cannot be written.
        """
        with self._told():
            self._writer.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"logger: cannot write '{self._folder}' ({error.strerror})"
            raise UserError(message) from None


class WeightsAndBiases:
    """A run at wandb.ai, or local with WANDB_MODE=offline; a resumed training continues it."""

    def __init__(self, run: LoggedRun) -> None:
        wandb = _imported("wandb")
        file = run.out / _WANDB_RUN
        known = file.read_text().strip() if run.resumed_at and file.is_file() else None
        self._run: Any = wandb.init(
            project=_PROJECT,
            name=run.out.name,
            dir=str(run.out),
            config=run.settings,
            id=known,
            resume="allow",
        )
        file.write_text(f"{self._run.id}\n")

    def write(self, numbers: Mapping[str, float], steps: int) -> None:
        """See `Logger.write`."""
        self._run.log(dict(numbers), step=steps)

    def close(self) -> None:
        """See `Logger.close`."""
        self._run.finish()


class Trackio:
    """A run in Trackio's database on this machine; a resumed training continues it by its name."""

    def __init__(self, run: LoggedRun) -> None:
        self._trackio: Any = _imported("trackio")
        resume = "allow" if run.resumed_at else "never"
        self._trackio.init(project=_PROJECT, name=run.out.name, config=run.settings, resume=resume)

    def write(self, numbers: Mapping[str, float], steps: int) -> None:
        """See `Logger.write`."""
        self._trackio.log(dict(numbers), step=steps)

    def close(self) -> None:
        """See `Logger.close`."""
        self._trackio.finish()


LOGGERS: dict[str, Callable[[LoggedRun], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


def parse(text: str) -> list[str]:
    """Returns the loggers of a setting, which are separated by commas; none for `none`.

    Raises:
        UserError: a logger is unknown (names the nearest), a duplicate, or combined with `none`.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*LOGGERS, NONE):
            raise unknown("logger", name, (*LOGGERS, NONE))
    if len(set(names)) < len(names):
        raise UserError(f"logger: '{text}' contains a duplicate")
    if NONE in names and len(names) > 1:
        raise UserError(f"logger: '{text}' combines none with others; choose one")
    return [name for name in names if name != NONE]


def check(text: str) -> None:
    """Checks the loggers of a setting before any work is done.

    Raises:
        UserError: see `parse`; or a logger is not installed (names the extra).
    """
    for name in parse(text):
        if name != DEFAULT:
            _imported(name)


def make(text: str, run: LoggedRun) -> list[Logger]:
    """Makes and starts the loggers of a setting.

    Raises:
        UserError: see `check`; or a service cannot be reached or rejects the user.
    """
    made: list[Logger] = []
    with contextlib.ExitStack() as stack:
        for name in parse(text):
            made.append(_begun(name, run))
            stack.callback(made[-1].close)
        stack.pop_all()  # No logger has failed.
    return made


def _begun(name: str, run: LoggedRun) -> Logger:
    try:
        return LOGGERS[name](run)
    except (UserError, OSError):
        raise
    except Exception as error:
        # The exceptions of the services have no common base class.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"logger: {name} cannot start ({reason})") from None


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"logger: {name} is not installed; install the extra '{name}' (pip install '.[{name}]')"
        ) from None
