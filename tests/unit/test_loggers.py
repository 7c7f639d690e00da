"""Loggers: destinations of the metrics besides metrics.jsonl."""

import errno
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.run import loggers
from tpsrl.rl.run.metrics import MetricsLog, read


class FakeService(types.ModuleType):
    """Substitute for the modules wandb and trackio that records its calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[Any] = []
        self.id = "abc123"

    def init(self, **options: Any) -> "FakeService":
        self.calls.append(("init", options))
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.calls.append(("log", step, numbers))

    def finish(self) -> None:
        self.calls.append("finish")


@pytest.fixture(params=["wandb", "trackio"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeService:
    fake = FakeService(request.param)
    monkeypatch.setitem(sys.modules, request.param, fake)
    return fake


def written(out: Path, logger: str, updates: int = 0) -> None:
    """Writes a record of metrics, with the number of `updates` before it."""
    log = MetricsLog(out, updates, 10 * updates, logger, {"ppo.clip": 0.2})
    row = {"update": updates + 1, "steps": 10 * updates + 10, "success": None, "ended": {"x": 2}}
    log.write({**row, "learner": {"kl": 0.5}})
    log.close()


def test_a_service_receives_the_numbers_of_every_record(
    tmp_path: Path, service: FakeService
) -> None:
    written(tmp_path / "one", service.__name__)
    (begun, options), logged, ended = service.calls
    assert begun == "init" and ended == "finish"
    assert options["project"] == "tpsrl" and options["name"] == "one"
    assert options["config"] == {"ppo.clip": 0.2}
    assert logged == ("log", 10, {"ended/x": 2.0, "learner/kl": 0.5})
    assert not (tmp_path / "one" / "tensorboard").exists()
    assert len(list(read(tmp_path / "one"))) == 1


def test_a_resumed_training_continues_its_run_of_the_service(
    tmp_path: Path, service: FakeService
) -> None:
    written(tmp_path, service.__name__)
    written(tmp_path, service.__name__, updates=1)
    first, second = (entry[1] for entry in service.calls if entry[0] == "init")
    assert second["name"] == first["name"] and second["resume"] == "allow"
    if service.__name__ == "wandb":
        assert (first["id"], second["id"]) == (None, "abc123")
    else:
        assert first["resume"] == "never"


def test_a_new_training_in_the_same_folder_is_a_new_run_of_the_service(
    tmp_path: Path, service: FakeService
) -> None:
    for _ in range(2):
        written(tmp_path, service.__name__)
    options = [entry[1] for entry in service.calls if entry[0] == "init"]
    assert options[0] == options[1] and options[0].get("id") is None


def test_a_full_disk_is_a_user_error_at_a_later_write_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    logger = loggers.TensorBoard(loggers.LoggedRun(tmp_path))
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
    until = time.monotonic() + 30.0
    with pytest.raises(
        UserError, match=f"^logger: cannot write '{tmp_path}/tensorboard' .No space"
    ):
        while time.monotonic() < until:
            logger.write({"success": 0.5}, 100)
            time.sleep(0.01)
    with pytest.raises(UserError, match="No space left on device"):
        logger.close()
    assert capsys.readouterr().err == ""


def test_loggers_are_separated_by_commas_and_none_selects_no_logger(
    tmp_path: Path, service: FakeService
) -> None:
    written(tmp_path / "both", f"tensorboard, {service.__name__}")
    assert len(service.calls) == 3 and list((tmp_path / "both" / "tensorboard").iterdir())
    written(tmp_path / "none", "none")
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["metrics.jsonl"]


def test_a_service_that_cannot_start_is_a_user_error_and_closes_other_loggers(
    tmp_path: Path, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[loggers.Logger] = []
    monkeypatch.setattr(loggers.TensorBoard, "close", lambda self: closed.append(self))

    def refuse(**options: Any) -> None:
        raise ValueError("No API key configured.\nmore")

    service.init = refuse  # type: ignore[method-assign, assignment]
    both = f"tensorboard,{service.__name__}"
    message = rf"^logger: {service.__name__} cannot start \(No API key configured\.\)$"
    with pytest.raises(UserError, match=message):
        written(tmp_path, both)
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensorbord", "did you mean 'tensorboard'?"),
        ("none,tensorboard", "logger: 'none,tensorboard' combines none with others; choose"),
        ("tensorboard,tensorboard", "contains a duplicate"),
        ("trackio", "logger: trackio is not installed; install the extra 'trackio'"),
    ],
)
def test_an_unavailable_logger_is_refused_before_any_work(
    text: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)  # as if it were not installed
    out = tmp_path / "out"
    assert cli.main(["train", "pick", f"logger={text}", f"out={out}"]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not out.exists()
