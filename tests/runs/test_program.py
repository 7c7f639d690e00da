"""A policy exported as a program acts as it does here, in a process without tpsrl."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policies

import skills.gym
from tpsrl import cli
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.policy.settings import PolicySettings

DOCS = Path(__file__).parents[2] / "docs" / "pretrained.md"
NETWORK = PolicySettings(
    encoder="se_resnet9", encoder_width=4, visual_width=8, state_width=8, lstm_layers=1,
    lstm_width=8, sight=3.0,
)  # fmt: skip
GLIMPSE = {"choice": "gaze", "depth": (64, 96), "network": dataclasses.replace(NETWORK, glimpse=32)}
CAMERAS = "head_depth:32,head_rgb:32,head_semantic:32x48,hand_depth:32,hand_instance:32"
REFUSE = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tpsrl", "skills", "planner", "eval"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
"""
RUN = """
import numpy as np
shown = np.load("shown.npz")
acted = []
for number in range(len(shown["state"])):
    seen = {name: shown[name][number : number + 1] for name in shown}
    if FORMAT == "torch_export":
        seen = {name: torch.from_numpy(values) for name, values in seen.items()}
    acted.append(np.asarray(act(seen))[0])
np.save("acted.npy", acted)
"""


def export(*words: str) -> int:
    return cli.main(["export", "pick", *words])


@pytest.mark.parametrize(
    ("form", "seen", "title"),
    [
        ("torch_export", {}, "run_program.py"),
        ("onnx", GLIMPSE, "run_onnx.py"),
        ("onnx", {"cameras": CAMERAS}, "run_onnx.py"),
    ],
)
def test_a_program_gives_the_same_actions_without_tpsrl(
    tmp_path: Path, form: str, seen: dict[str, Any], title: str
) -> None:
    changes = {"choice": "fetch", **({"network": NETWORK, **seen} if seen else {})}
    source = tiny_policies.trained(tmp_path / "training", "pick", **changes)
    assert export(f"format={form}", f"agent={source}", f"out={tmp_path}", "sample=false") == 0
    about = json.loads((tmp_path / "pick.json").read_text())
    inputs = skills.gym.load_policy("pick", source).inputs
    entries = about["observation"]["state"]["sensors"]
    assert [sensor["name"] for sensor in entries] == list(inputs.sensors)
    assert [(sensor["begin"], sensor["end"]) for sensor in entries] == [
        (lies.start, lies.stop) for lies in inputs.layout().values()
    ]
    assert entries[1]["unit"] == "rad" and not about["sample"] and not about["delay"]

    rng = np.random.default_rng(0)
    shapes = inputs.shapes().items()
    shown = {
        name: rng.uniform(0, 1 if dtype_of(name) is np.float32 else 7, (5, *shape)).astype(
            dtype_of(name)
        )
        for name, shape in shapes
    }
    np.savez(tmp_path / "shown.npz", **shown)
    (code,) = re.findall(rf'title="{title}"\n(.*?)```', DOCS.read_text(), re.DOTALL)
    (tmp_path / "run.py").write_text(f"{REFUSE}\nFORMAT = {form!r}\n{code}{RUN}")
    subprocess.run([sys.executable, "run.py"], cwd=tmp_path, check=True)
    policy = skills.gym.load_policy("pick", source, sample=False)
    expected = [policy.act({n: values[i] for n, values in shown.items()}) for i in range(5)]
    np.testing.assert_allclose(np.load(tmp_path / "acted.npy"), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 1e-4


def test_a_program_refuses_what_belongs_to_a_shipped_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_policies.trained(tmp_path / "training", "pick")
    program = ("format=torch_export", f"agent={source}", f"out={tmp_path}")
    assert export(*program, "stop_shift=1") == 2
    assert "stop_shift: has no effect on format=torch_export" in capsys.readouterr().err
    assert cli.main(["export", "pick", f"agent={source}", "format=torch_exprt"]) == 2
    assert "format: unknown value 'torch_exprt'; did you mean" in capsys.readouterr().err
