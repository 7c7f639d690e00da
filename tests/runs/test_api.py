import importlib.util
import inspect
import json
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tpsrl
from tpsrl import api, config
from tpsrl.errors import UserError
from tpsrl.rl.run.signals import SignalsNoted
from tpsrl.runtime import moved
from tpsrl.training import loading

TINY = {
    "preset": "cpu_state",
    "preset.steps": 64,
    "preset.num_envs": 2,
    "preset.num_steps": 16,
    "preset.ppo.minibatches": 2,
    "num_objects": 12,
    "num_episodes": 1,
    "processes": 0,
    "validation_episodes": 0,
}


def test_importing_tpsrl_does_not_import_commands() -> None:
    known = {"tpsrl.runtime", "tpsrl.runtime.moved", "tpsrl.runtime.shadowing"}
    loaded = f"[m for m in sys.modules if m.startswith('tpsrl.') and m not in {known}]"
    code = f"import sys, tpsrl; assert not {loaded}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_package_has_the_functions_of_the_api_and_no_others() -> None:
    own = inspect.getmembers(api, lambda f: getattr(f, "__module__", "") == api.__name__)
    functions = {name for name, _ in own if not name.startswith("_")}
    assert functions == set(tpsrl.__all__) - {"__version__"}
    assert all(getattr(tpsrl, name) is getattr(api, name) for name in functions)
    with pytest.raises(AttributeError, match="module 'tpsrl' has no attribute 'evalute'"):
        tpsrl.evalute  # type: ignore[attr-defined]  # noqa: B018


def test_importing_a_module_of_an_earlier_version_names_the_new_module() -> None:
    for old, new in moved.names().items():
        assert importlib.util.find_spec(new) is not None
        with pytest.raises(ImportError, match=f"'{re.escape(old)}' is now '{re.escape(new)}'"):
            importlib.import_module(old)
    with pytest.raises(ImportError, match=r"'skills\.learned' is now 'skills\.policies\.learned'"):
        exec("from skills import learned")


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"num_episodes": 5, "replan": True}, {"num_episodes": 5, "replan": True}),
        ({"out": Path("a") / "b"}, {"out": "a/b"}),
        ({"starts": None}, {}),
        ({"skills": {"pick": "out/pick"}}, {"skills.pick": "out/pick"}),
        ({"preset": {"ppo": {"clip": 0.1}}}, {"preset.ppo.clip": 0.1}),
        ({"preset": {"name": "bps", "steps": 9}}, {"preset": "bps", "preset.steps": 9}),
        ({"preset": "bps", "preset.steps": 9}, {"preset": "bps", "preset.steps": 9}),
        ({"seed": np.int64(3), "lapses": np.float32(0.5)}, {"seed": 3, "lapses": 0.5}),
    ],
)
def test_dictionaries_become_values_by_dotted_key(
    settings: dict[str, Any], values: dict[str, Any]
) -> None:
    found = config.flatten(settings)
    assert found == values
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in values.items()
    }


def test_an_empty_output_folder_means_the_default_folder() -> None:
    for given in ({}, {"out": None}, {"out": ""}):
        assert api._out(given, "out/pick") == Path("out/pick")


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"resume": "auto", "out": "there"}, "there"),
        ({"resume": "auto"}, "out/train/pick"),
        ({"resume": "there"}, "there"),
        ({}, "out/train/pick"),
    ],
)
def test_train_returns_the_folder_of_the_training(
    settings: dict[str, Any], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpsrl.training.run.train", lambda settings: 0)
    monkeypatch.setattr(loading, "training", dict)
    assert api.train("pick", **settings) == Path(folder)


def test_signals_are_handled_in_the_main_thread_only() -> None:
    taken: list[str] = []

    def note() -> None:
        with SignalsNoted() as noted:
            taken.append(noted.take())

    thread = threading.Thread(target=note)
    thread.start()
    thread.join()
    assert taken == [""]


def test_a_recursive_dictionary_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["ppo"] = endless
    with pytest.raises(UserError, match="settings: a dictionary is nested too deeply"):
        tpsrl.train("pick", preset=endless)


def test_a_learning_rate_keeps_its_value_when_flattened() -> None:
    values = config.flatten({"skill": "pick", "preset": {"ppo": {"learning_rate": 2.5e-05}}})
    settings = loading.training(values)
    assert settings.preset.ppo.learning_rate == 2.5e-05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tpsrl.evaluate("pikc"), "did you mean 'pick'?"),
        (lambda: tpsrl.evaluate("pick", num_episodes=0), "num_episodes: 0 is out of range"),
        (lambda: tpsrl.film("pick", sede=1), "unknown key 'sede'"),
        (lambda: tpsrl.train("pick", preset="cpu_smal"), "did you mean 'cpu_small'?"),
        (
            lambda: tpsrl.train(resume="/proc/nowhere"),
            "/proc/nowhere is not the folder of a training",
        ),
        (lambda: tpsrl.train(), "skill: choose one of navigate, "),
        (lambda: tpsrl.train(3), "train: 3 is not the name of a skill or scenario"),  # type: ignore[arg-type]
        (lambda: tpsrl.train(resume=3), "resume: 3 is not a path"),
        (lambda: tpsrl.evaluate("pick", out=3), "out: 3 is not a path"),
        (lambda: tpsrl.evaluate("pick", seed="a\nb"), "seed: 'a\\nb' is not an integer"),
        (lambda: tpsrl.evaluate("pick", seed=10**5000), "seed: a number of more than 400 digits"),
    ],
)
def test_invalid_settings_raise_the_error_of_the_command_line(call: Any, message: str) -> None:
    with pytest.raises(UserError) as raised:
        call()
    assert message in str(raised.value)


def test_evaluate_returns_its_report(tmp_path: Path) -> None:
    report = tpsrl.evaluate(
        "pick", agent="zero", num_episodes=1, num_objects=12, processes=1, out=tmp_path
    )
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert (report["skill"], report["num_episodes"]) == ("pick", 1)


def state() -> dict[str, Any]:
    """Returns the state of the process on which other code depends."""
    return {
        "threads": torch.get_num_threads(),
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "environment": dict(os.environ),
    }


def test_a_call_restores_the_state_of_the_process_even_after_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = state()
        tpsrl.train("navigate", out=tmp_path / "navigate", threads=1, **TINY)
        few = {"num_episodes": 1, "num_objects": 12, "processes": 1, "out": tmp_path / "out"}
        tpsrl.evaluate("navigate", agent=tmp_path / "navigate", **few)
        assert state() == before
        with pytest.raises(UserError, match="unknown key 'sede'"):
            tpsrl.evaluate("pick", sede=1)
        with pytest.raises(ZeroDivisionError), api._call("evaluate", "pick", {}):
            torch.set_num_threads(1)
            torch.manual_seed(1)
            np.random.seed(1)
            random.seed(1)
            os.environ["OMP_NUM_THREADS"] = "7"
            raise ZeroDivisionError
        assert state() == before
    finally:
        torch.set_num_threads(threads)


def test_the_first_call_leaves_the_callers_random_generator_unchanged() -> None:
    code = (
        "import random, tpsrl; s = random.getstate(); tpsrl.evaluate; print(s == random.getstate())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"


def test_film_returns_its_video(tmp_path: Path) -> None:
    settings = {"num_objects": 12, "processes": 1, "protocol": {"alone": {"pick": {"steps": 8}}}}
    (video,) = tpsrl.film("pick", agent="zero", out=tmp_path, **settings)
    assert video == tmp_path / "videos" / "0000.mp4"
    assert video.stat().st_size > 0


def test_train_returns_its_folder_and_resumes_from_it(tmp_path: Path) -> None:
    out = tpsrl.train("navigate", out=tmp_path, **TINY)
    assert out == tmp_path
    assert tpsrl.train(resume=out, **{"preset.steps": 128}) == tmp_path
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [32, 64, 96, 128]
