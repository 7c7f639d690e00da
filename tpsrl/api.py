"""Python API: evaluate, film, record and train with the settings of the command line.

`tpsrl.evaluate("pick", num_episodes=5)` is `tpsrl eval pick num_episodes=5`. Nested settings are
given as a dictionary, whose `name` chooses a preset, or by dotted key:

    tpsrl.train("pick", preset={"name": "cpu_small", "steps": 100_000, "ppo": {"epochs": 1}})
    tpsrl.evaluate("pick", protocol="m3", **{"protocol.skills.pick.rest_m": 0.1})

None leaves a setting at its default. All settings are checked before anything runs; an invalid one
raises the `tpsrl.errors.UserError` that the command line would print. SIGTERM or the death of a
worker raises a `tpsrl.errors.RunError`. Repeating the same call resumes the run; a training is
resumed with `resume`. The state of the calling process (torch's threads, global random generators
and environment variables) is restored after each call.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eval import targets
from eval.settings import BankSettings
from skills import user_code
from tpsrl import config
from tpsrl.errors import RunError, UserError, one_line
from tpsrl.runtime import files, processes, surroundings
from tpsrl.runtime.undisturbed import undisturbed
from tpsrl.training import cloning, demos, loading

_REPEAT = "repeat the call to resume"
_AUTO = "auto"  # value of `resume`: resumes the training in `out`, if there is one


def evaluate(target: str, /, **settings: Any) -> dict[str, Any]:
    """Evaluates a scenario or a skill as `tpsrl eval` does, and returns its report.json.

    Args:
        target: a scenario, a skill, `all` or `skills`
        settings: the keys of `tpsrl eval TARGET --help`

    Raises:
        UserError: there is no such target, or a setting is not valid.
        RunError: the evaluation was stopped early.
    """
    out = _out(settings, f"out/{target}")
    with _call("evaluate", target, {**settings, "out": out}) as values:
        found = targets.find(target)
        found.run(found.load(values))
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def film(target: str, /, **settings: Any) -> list[Path]:
    """Films episodes as `tpsrl video` does, one by default, and returns the paths of the videos.

    Args:
        target: a scenario, a skill, `all` or `skills`
        settings: the keys of `tpsrl video TARGET --help`

    Raises:
        UserError: there is no such target, or a setting is not valid.
        RunError: the evaluation was stopped early.
    """
    from eval.running import filming

    out = _out(settings, f"out/videos/{target}")
    with _call("film", target, {**settings, "out": out}) as values:
        found = targets.find(target)
        found.run(filming.with_newest(filming.filmed(found.load(values), target)))
    folders = "*/videos" if target in (targets.ALL, targets.SKILLS) else "videos"
    return sorted(out.glob(f"{folders}/*.mp4"))


def train(skill: str | None = None, /, **settings: Any) -> Path:
    """Trains a skill as `tpsrl train` does, and returns the folder of the training.

    Args:
        skill: name of the skill; None with `resume=FOLDER`, which resumes an earlier training.
            `resume="auto"` resumes the training in `out`, if there is one
        settings: the keys of `tpsrl train --help`

    Raises:
        UserError: there is no such skill, or a setting is not valid.
        RunError: the training was stopped early; its progress is saved.
    """
    return _train("train", skill, settings)


def distill(skill: str | None = None, /, **settings: Any) -> Path:
    """Distils a teacher into a student as `tpsrl distill` does; see `train`.

    Args:
        skill: name of the skill; None with `resume=FOLDER`
        settings: the keys of `tpsrl distill --help`

    Raises:
        UserError: there is no such skill, or a setting is not valid.
        RunError: the training was stopped early; its progress is saved.
    """
    return _train("distill", skill, settings)


def record_demos(skill: str, /, **settings: Any) -> Path:
    """Records demonstrations of a skill as `tpsrl demos` does, and returns their folder.

    Args:
        skill: name of the skill
        settings: the keys of `tpsrl demos --help`

    Raises:
        UserError: there is no such skill, or a setting is not valid.
        RunError: the recording was stopped early.
    """
    with _call("record_demos", skill, {**settings, "skill": skill}) as values:
        return demos.record(loading.of_skill(demos.DemosSettings, values))


def clone(skill: str, /, **settings: Any) -> Path:
    """Trains a policy on demonstrations as `tpsrl clone` does, and returns its folder.

    Args:
        skill: name of the skill
        settings: the keys of `tpsrl clone --help`

    Raises:
        UserError: there is no such skill, or a setting is not valid.
        RunError: the training was stopped early.
    """
    with _call("clone", skill, {**settings, "skill": skill}) as values:
        return cloning.clone(loading.of_skill(cloning.CloneSettings, values))


def record_bank(scenario: str, /, **settings: Any) -> dict[str, dict[str, Any]]:
    """Records exit states into a bank as `tpsrl bank` does, and returns the bank's index by skill.

    Args:
        scenario: scenario to run: a name, or the path of a file
        settings: the keys of `tpsrl bank --help`

    Raises:
        UserError: there is no such scenario, or a setting is not valid.
        RunError: the recording was stopped early, or there was no state to save.
    """
    from eval.running.bank import make_bank

    with _call("record_bank", scenario, {**settings, "scenario": scenario}) as values:
        return make_bank(config.load(BankSettings, values))


def _train(call: str, skill: str | None, settings: dict[str, Any]) -> Path:
    from tpsrl.training.run import train

    if settings.get("resume") in (None, _AUTO):
        settings["out"] = out = _out(settings, f"out/{call}/{skill}")
    else:
        settings["resume"] = out = files.user_path(settings["resume"], "resume")
    load = loading.distillation if call == "distill" else loading.training
    advice = f"resume='{out}' resumes it"
    with _call(call, skill, {**settings, "skill": skill}, advice) as values:
        code = train(load(values))
    if code:
        raise RunError(f"{call}: stopped early; {advice}")
    return out


def _out(settings: Mapping[str, Any], default: str) -> Path:
    """Returns the output folder: the setting `out`, or `default` if it is None or empty."""
    given = settings.get("out")
    return files.user_path(default if given in (None, "") else given)


@contextlib.contextmanager
def _call(
    name: str, target: str | None, settings: Mapping[str, Any], advice: str = _REPEAT
) -> Iterator[dict[str, Any]]:
    """Prepares the process for a call, and yields the call's settings by dotted key."""
    if target is not None and not isinstance(target, str):
        raise UserError(f"{name}: {target!r} is not the name of a skill or scenario")
    complain, variables = sys.unraisablehook, dict(os.environ)
    surroundings.let_threads_sleep()
    try:
        with undisturbed(variables), processes.ending_in_order():
            surroundings.forget_odd_sizes()
            values = config.flatten(settings)
            yield values | user_code.register(values, target or "")
    except UserError as error:
        raise UserError(one_line(str(error))) from None
    except processes.Terminated:
        raise RunError(f"{name}: stopped early; {advice}") from None
    finally:
        sys.unraisablehook = complain
