"""Evaluate, film and train from Python: the commands as functions, with the same keys.

`tpsrl.evaluate("pick", num_episodes=5)` is `tpsrl eval pick num_episodes=5`. An entry within a
setting is given by a dictionary, whose `name` chooses a preset, or by its dotted key:

    tpsrl.train("pick", preset={"name": "cpu_small", "steps": 100_000, "ppo": {"epochs": 1}})
    tpsrl.evaluate("pick", protocol="m3", **{"protocol.skills.pick.rest_m": 0.1})

None leaves a setting at its default. Everything is checked before anything runs, and what is not
valid raises the `tpsrl.errors.UserError` that the command line would print.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tpsrl import cli
from tpsrl.errors import RunError, UserError, one_line
from tpsrl.runtime import files, processes

_MOST_DIGITS = 400  # of a whole number; Python does not write as many as one may have
_AUTO = "auto"  # of `resume`: goes on with what is in `out`, if there is anything


def evaluate(target: str, /, **settings: Any) -> dict[str, Any]:
    """Evaluates a scenario or a skill as `tpsrl eval` does, and returns its report.json.

    Args:
        target: a scenario, a skill, `all` or `skills`
        settings: the keys of `tpsrl eval TARGET --help`

    Raises:
        UserError: there is no such target, or a setting is not valid.
        RunError: a worker failed or died, or SIGTERM stopped it (the same call goes on).
    """
    out = _out(settings, f"out/{target}")
    _to_the_end("eval", target, {**settings, "out": out})
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def film(target: str, /, **settings: Any) -> list[Path]:
    """Films episodes as `tpsrl video` does, one unless told otherwise, and returns the videos.

    Args:
        target: a scenario, a skill, `all` or `skills`
        settings: the keys of `tpsrl video TARGET --help`

    Raises:
        UserError: there is no such target, or a setting is not valid.
        RunError: a worker failed or died, or SIGTERM stopped it (the same call goes on).
    """
    out = _out(settings, f"out/videos/{target}")
    _to_the_end("video", target, {**settings, "out": out})
    folders = "*/videos" if target in ("all", "skills") else "videos"
    return sorted(out.glob(f"{folders}/*.mp4"))


def train(skill: str | None = None, /, **settings: Any) -> Path:
    """Trains a skill as `tpsrl train` does, and returns the folder of the training.

    Args:
        skill: which one; None with `resume=FOLDER`, which goes on with an earlier training; with
            `resume="auto"` that is the one in `out`, if there is one
        settings: the keys of `tpsrl train --help`

    Raises:
        UserError: there is no such skill, or a setting is not valid.
        RunError: the training failed, or was stopped by a signal (all that it learned is saved).
    """
    if settings.get("resume") in (None, _AUTO):
        settings["out"] = out = _out(settings, f"out/train/{skill}")
    else:
        settings["resume"] = out = files.user_path(settings["resume"], "resume")
    code = _run("train", skill, settings)
    if code:
        raise RunError(f"train: stopped early; resume='{out}' resumes it")
    return out


def _out(settings: Mapping[str, Any], default: str) -> Path:
    """The folder of the results; nothing at all is the default, as on the command line."""
    given = settings.get("out")
    return files.user_path(default if given in (None, "") else given)


def _run(command: str, target: str | None, settings: Mapping[str, Any]) -> int:
    if target is not None and not isinstance(target, str):
        raise UserError(f"{command}: {target!r} is not the name of a skill or scenario")
    cli.let_threads_sleep()
    cli.forget_odd_sizes()
    words = [] if target is None else [target]
    try:
        words += _overrides(settings)
    except RecursionError:
        raise UserError("settings: a dictionary is nested too deeply, or in itself") from None
    complain = sys.unraisablehook
    try:
        called, loaded = cli.parse([command, *words])
        with processes.ending_in_order():
            return int(called.run(loaded))
    except UserError as error:
        raise UserError(one_line(str(error))) from None
    except processes.Terminated:
        return 128 + signal.SIGTERM
    finally:
        sys.unraisablehook = complain


def _to_the_end(command: str, target: str, settings: Mapping[str, Any]) -> None:
    if _run(command, target, settings):
        raise RunError(f"{command}: stopped early; repeat the call to resume")


def _overrides(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings as the command line takes them: `key=value`, dotted within a dictionary."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            entries = dict(value)
            yield from _overrides({key: entries.pop("name", None)}, prefix)
            yield from _overrides(entries, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}={_text(f'{prefix}{key}', value)}"


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        raise UserError(f"{key}: a number of more than {_MOST_DIGITS} digits is out of range")
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
