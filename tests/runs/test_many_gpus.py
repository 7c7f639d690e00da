"""The commands of docs/distributed.md; the one for two machines is run on CPU cores with gloo.

`test_ranks_killed` starts those for one machine, `test_slurm` those for SLURM.
"""

import json
import signal
from pathlib import Path

import fake_slurm
import ranks
from test_slurm import ROLLOUT, TINY
from test_snippets import ROOT, blocks, commands

PAGE = "docs/distributed.md"
STEPS = 3 * ROLLOUT


def commands_of(section: str) -> list[list[str]]:
    """Returns the words of each command in a section of the page."""
    page = (ROOT / PAGE).read_text()
    _, _, rest = page.partition(f"\n## {section}\n")
    text = rest.partition("\n## ")[0]
    found = [w for b in blocks(PAGE, text) if b.kind == "shell" for w in commands(b.text)]
    assert found
    return found


def test_the_command_for_two_machines_trains_on_both(tmp_path: Path) -> None:
    (words,) = (words for words in commands_of("Many GPUs") if "--nnodes=2" in words)
    small = {
        "--nproc-per-node": "1",
        "--rdzv-endpoint": f"127.0.0.1:{fake_slurm.free_port()}",
    }
    assert words[0] == "torchrun"
    command = ["torch.distributed.run"]
    for word in words[1:]:
        name, is_set, _ = word.partition("=")
        command.append(f"{name}={small[name]}" if is_set and name in small else word)
    command += [*TINY[1:], f"preset.steps={STEPS}", "out=out"]
    ended = [begun.end() for begun in [ranks.Command(command, tmp_path) for _ in range(2)]]
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert any("on each of 2 ranks" in out for _, out, _ in ended)
    rows = (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["steps"] >= STEPS


def test_the_page_names_an_existing_batch_script() -> None:
    (words,) = commands_of("SLURM")
    (script,) = (word for word in words if word.endswith(".sbatch"))
    assert (ROOT / script).is_file() and signal.SIGUSR1.name[3:] in (ROOT / script).read_text()
