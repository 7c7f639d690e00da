import ast
from pathlib import Path

import pytest

import tpsrl.rl

ROOT = Path(tpsrl.rl.__file__).parent
# A folder imports from itself and from the folders before it.
ROOMS = (
    "distributed", "envs", "policy", "collection", "learning", "imitation", "run", "bench",
)  # fmt: skip


def imports(path: Path) -> set[str]:
    """Returns the folders of `tpsrl.rl` that a module imports from, anywhere in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tpsrl.rl"):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[2] for name in names if name.startswith("tpsrl.rl.")}


def test_every_folder_has_a_place_in_the_order() -> None:
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_folder_imports_only_from_itself_and_the_folders_before_it(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for path in (ROOT / room).rglob("*.py"):
        assert imports(path) <= allowed, path
