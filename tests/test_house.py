import ast
import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGES = ("tpsrl", "skills", "planner", "eval", "configs")

# Top to bottom. A module may import from its own layer and from those below it.
LAYERS = (
    ("tpsrl.cli", "tpsrl.commands", "tpsrl.__main__"),
    ("eval",),
    ("planner",),
    ("skills",),
    ("tpsrl.rl", "tpsrl.sim", "tpsrl.video"),
    ("tpsrl.world",),
    ("tpsrl.config", "tpsrl.errors", "tpsrl.files", "tpsrl.machine", "tpsrl.processes"),
)


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def layer(module: str) -> int | None:
    for depth, prefixes in enumerate(LAYERS):
        if any(module == p or module.startswith(f"{p}.") for p in prefixes):
            return depth
    return None


def imported(name: str, tree: ast.AST, is_package: bool) -> set[str]:
    """Modules that a module imports anywhere in it, functions included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: None if is_package and node.level == 1 else -node.level]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from tpsrl import config` may name a module or a thing in one: both are looked at.
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def upward_imports(name: str, tree: ast.AST, is_package: bool = False) -> list[str]:
    own = layer(name)
    if own is None:
        return []
    depths = {target: layer(target) for target in imported(name, tree, is_package)}
    return sorted(target for target, depth in depths.items() if depth is not None and depth < own)


@pytest.mark.parametrize(("name", "path"), list(modules()))
def test_no_module_imports_from_a_layer_above_it(name: str, path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert upward_imports(name, tree, path.name == "__init__.py") == []


def test_every_module_belongs_to_a_layer() -> None:
    homeless = [name for name, _ in modules() if layer(name) is None]
    assert homeless == ["tpsrl", "configs"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("skills.pick", "import planner.execution.executor"),
        ("tpsrl.sim.mujoco_sim", "from skills import base"),
        ("tpsrl.world.home", "def f():\n    from tpsrl.sim.base import Sphere"),
        ("tpsrl.world.home", "from ..sim import base"),
        ("planner.search", "from tpsrl import cli"),
    ],
)
def test_an_upward_import_is_found(name: str, code: str) -> None:
    assert upward_imports(name, ast.parse(code)) != []


def test_every_dependency_is_pinned_inside_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [Requirement(r) for r in itertools.chain(project["dependencies"], *extras)]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(p.name): str(p.specifier).removeprefix("==") for p in pins}
    loose = [r.name for r in wanted if versions.get(canonicalize_name(r.name)) not in r.specifier]
    assert loose == []
