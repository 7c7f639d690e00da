import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from test_snippets import shorter

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


@pytest.mark.parametrize("name", names(NOTEBOOKS))
def test_a_notebook_is_kept_without_its_outputs(name: str) -> None:
    cells = nbformat.read(ROOT / name, as_version=4).cells
    assert [c for c in cells if c.get("outputs") or c.get("execution_count")] == []


@pytest.mark.parametrize("name", names(NOTEBOOKS))
def test_a_notebook_runs_and_shows_an_image(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel is a separate process, which finds the packages by this variable.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    notebook = nbformat.read(ROOT / name, as_version=4)
    for cell in notebook.cells:
        cell.source = shorter(cell.source)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    shown = [
        kind for c in notebook.cells for o in c.get("outputs", ()) for kind in o.get("data", ())
    ]
    assert "image/png" in shown
