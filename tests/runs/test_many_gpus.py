"""The commands of docs/distributed.md, run small: on cores, with gloo."""

import json
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import fake_slurm
import pytest
from test_slurm import ROLLOUT, TINY
from test_snippets import ROOT, blocks, commands

PAGE = "docs/distributed.md"
STEPS = 3 * ROLLOUT
SMALL = {
    "--nproc-per-node": "2",
    "--nodes": "2",
    "--ntasks-per-node": "1",
    "--rdzv-endpoint": "127.0.0.1",
}


def commands_of(section: str) -> list[list[str]]:
    """The words of each command of a section of the page."""
    page = (ROOT / PAGE).read_text()
    _, _, rest = page.partition(f"\n## {section}\n")
    text = rest.partition("\n## ")[0]
    found = [w for b in blocks(PAGE, text) if b.kind == "shell" for w in commands(b.text)]
    assert found
    return found


def small(words: list[str], machines: int, port: int) -> list[str]:
    """The command with launcher's options for two ranks, its script's path whole."""
    found = []
    for word in words:
        name, is_set, _ = word.partition("=")
        if name == "--nproc-per-node" and machines > 1:
            word = "--nproc-per-node=1"
        elif name == "--rdzv-endpoint":
            word = f"{name}=127.0.0.1:{port}"
        elif is_set and name in SMALL:
            word = f"{name}={SMALL[name]}"
        found.append(str(ROOT / word) if word.endswith(".sbatch") else word)
    return found


def overrides(words: list[str], out: str) -> list[str]:
    """What makes the training a small one; one that goes on has all that from its folder."""
    if any(word.startswith("resume=out/") for word in words):
        return [f"preset.steps={2 * STEPS}"]
    return [*TINY[1:], f"preset.steps={STEPS}", f"out={out}"]


def run(words: list[str], out: str, folder: Path, env: Mapping[str, str]) -> None:
    """Runs a command to its end, on as many machines as it is for."""
    launched = words[0] == "torchrun"
    machines = next(
        (int(w.partition("=")[2]) for w in words if launched and w.startswith("--nnodes=")), 1
    )
    assert machines <= 2
    whole = [*small(words, machines, fake_slurm.free_port()), *overrides(words, out)]
    with (folder / "log").open("w") as log:
        started = [
            subprocess.Popen(whole, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT)
            for _ in range(machines)
        ]
        codes = [process.wait(fake_slurm.LIMIT_S) for process in started]
    assert codes == [0] * machines, f"{shlex.join(whole)}\n{(folder / 'log').read_text()}"


def steps_of(folder: Path) -> list[int]:
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(row)["steps"] for row in rows]


@pytest.mark.parametrize("section", ["Many GPUs", "SLURM"])
def test_the_commands_train_with_several_ranks(section: str, tmp_path: Path) -> None:
    first = "out/train/pick"  # which the page resumes
    with fake_slurm.installed(tmp_path) as env:
        for number, words in enumerate(commands_of(section)):
            goes_on = any(word.startswith("resume=out/") for word in words)
            out = first if number == 0 or goes_on else f"out/{number}"
            run(words, out, tmp_path, env)
            assert steps_of(tmp_path / out)[-1] >= (2 if goes_on else 1) * STEPS
            said = (tmp_path / "log").read_text()
            assert "on each of 2 ranks" in said, said
            assert fake_slurm.processes(Path(env["FAKE_SLURM"])) == []


def test_the_page_names_the_script_that_is_there() -> None:
    (words,) = commands_of("SLURM")
    (script,) = (word for word in words if word.endswith(".sbatch"))
    assert (ROOT / script).is_file() and signal.SIGUSR1.name[3:] in (ROOT / script).read_text()
