"""Where a training's numbers go besides metrics.jsonl: TensorBoard, Weights & Biases, Trackio."""

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
_PROJECT = "tpsrl"  # of the services that sort runs by project
_WANDB_RUN = "wandb_run"  # file in the training's folder, by which the run is gone on with


@dataclasses.dataclass(frozen=True, slots=True)
class LoggedRun:
    """The training that is logged.

    `out` is its folder, whose name is the run's; `resumed_at` the step that it goes on from, 0 for
    a new one; `settings` what it was told.
    """

    out: Path
    resumed_at: int = 0
    settings: Json = dataclasses.field(default_factory=dict)


class Logger(Protocol):
    """Takes the numbers of one training."""

    def write(self, numbers: Mapping[str, float], steps: int) -> None:
        """Numbers by name, those of a part under `part/`, after so many steps of experience."""
        ...

    def close(self) -> None:
        """Hands over what is left."""
        ...


def _say_of_threads(told: threading.ExceptHookArgs) -> None:
    """As Python does, but for the thread that writes event files.

    What ends that one, a full disk for example, is raised again where the next number is written.
    """
    if not type(told.thread).__module__.startswith("tensorboard."):
        _SAY(told)


class TensorBoard:
    """Event files in the training's folder; those behind the step that it goes on from are void."""

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
    """A run at wandb.ai, or kept here by WANDB_MODE=offline; one that is resumed goes on."""

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
    """A run in Trackio's database on this machine; one that is resumed goes on under its name."""

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
    """The loggers that a setting names, by commas; `none` are none.

    Raises:
        UserError: one is unknown (names the nearest), named twice, or stands beside `none`.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*LOGGERS, NONE):
            raise unknown("logger", name, (*LOGGERS, NONE))
    if len(set(names)) < len(names):
        raise UserError(f"logger: '{text}' contains a duplicate")
    if NONE in names and len(names) > 1:
        raise UserError(f"logger: '{text}' has none and others; choose")
    return [name for name in names if name != NONE]


def check(text: str) -> None:
    """Refuses before any work what `make` would refuse.

    Raises:
        UserError: see `parse`; or one is not installed (names the extra).
    """
    for name in parse(text):
        if name != DEFAULT:
            _imported(name)


def make(text: str, run: LoggedRun) -> list[Logger]:
    """The loggers that a setting names, begun.

    Raises:
        UserError: see `check`; or a service cannot be reached or does not know the user.
    """
    made: list[Logger] = []
    with contextlib.ExitStack() as stack:
        for name in parse(text):
            made.append(_begun(name, run))
            stack.callback(made[-1].close)
        stack.pop_all()  # None has failed.
    return made


def _begun(name: str, run: LoggedRun) -> Logger:
    try:
        return LOGGERS[name](run)
    except (UserError, OSError):
        raise
    except Exception as error:
        # What the services raise has no common base.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"logger: {name} cannot begin ({reason})") from None


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"logger: {name} is not installed; the extra '{name}' has it (pip install '.[{name}]')"
        ) from None
