import ast
import functools
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import networkx as nx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from skills import registry

ROOT = Path(__file__).parents[2]
PACKAGES = ("tpsrl", "skills", "planner", "eval", "configs")

# Top to bottom. A module may import from its own layer and from those below it.
LAYERS = (
    ("tpsrl.cli", "tpsrl.commands", "tpsrl.__main__"),
    ("tpsrl.api",),
    ("tpsrl.training",),
    ("eval",),
    ("planner",),
    ("skills",),
    ("tpsrl.motion", "tpsrl.rl", "tpsrl.sim"),
    ("tpsrl.render",),
    ("tpsrl.world",),
    ("tpsrl.config", "tpsrl.errors", "tpsrl.runtime"),
)


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Returns the syntax tree of a file, which is cached and must not be changed."""
    return ast.parse(path.read_text())


@functools.cache
def layer(module: str) -> int | None:
    for depth, prefixes in enumerate(LAYERS):
        if any(module == p or module.startswith(f"{p}.") for p in prefixes):
            return depth
    return None


def imported(name: str, tree: ast.AST, is_package: bool) -> set[str]:
    """Returns the modules that a module imports, including imports inside functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: None if is_package and node.level == 1 else -node.level]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from tpsrl import config` may import a module or a name in a module: both are added.
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def upward_imports(name: str, tree: ast.AST, is_package: bool = False) -> list[str]:
    own = layer(name)
    if own is None:
        return []
    depths = {target: layer(target) for target in imported(name, tree, is_package)}
    return sorted(target for target, depth in depths.items() if depth is not None and depth < own)


def test_no_module_imports_from_a_layer_above_it() -> None:
    found = {
        name: upward_imports(name, parsed(path), path.name == "__init__.py")
        for name, path in modules()
    }
    assert {name: upward for name, upward in found.items() if upward} == {}


def test_every_module_belongs_to_a_layer() -> None:
    homeless = [name for name, _ in modules() if layer(name) is None]
    assert homeless == ["tpsrl", "configs"]


def test_importing_the_world_does_not_import_mujoco() -> None:
    names = [name for name, _ in modules() if name.startswith("tpsrl.world")]
    code = f"import sys, {', '.join(names)}\nprint('mujoco' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("skills.pick", "import planner.execution.executor"),
        ("tpsrl.sim.mujoco_sim", "from skills import base"),
        ("tpsrl.world.floor", "def f():\n    from tpsrl.sim.base import Simulator"),
        ("tpsrl.world.floor", "from ..sim import base"),
        ("planner.search", "from tpsrl import cli"),
    ],
)
def test_an_upward_import_is_found(name: str, code: str) -> None:
    assert upward_imports(name, ast.parse(code)) != []


OWN_ROOMS = tuple(
    f"skills.{room}"
    for room in ("navigate", "pick", "place", "articulated", "pointnav", "objectnav", "monolithic")
)


def skill_names_in(tree: ast.AST, names: Collection[str]) -> list[tuple[int, str]]:
    """Returns line and name where a string, attribute, keyword or field is the name of a skill.

    Prose and variables may name skills, because some skills have ordinary words as names.
    """
    found = []
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        elif isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.keyword):
            name = node.arg or ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        if name in names:
            found.append((node.lineno, name))
    return sorted(found)


def test_only_modules_of_a_skill_name_the_skill() -> None:
    found = {
        name: skill_names_in(parsed(path), registry.names())
        for name, path in modules()
        if not any(name == room or name.startswith(f"{room}.") for room in OWN_ROOMS)
    }
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    "code",
    [
        'if skill == "navigate":\n    pass',
        'THRESHOLDS = {"open_fridge": 1.0}',
        "class Limits:\n    pick: int = 200",
        "limits = Limits(pick=3)",
        "steps = limits.close_drawer",
    ],
)
def test_a_skills_name_in_code_is_found(code: str) -> None:
    assert len(skill_names_in(ast.parse(code), registry.names())) == 1


def test_names_of_public_classes_and_aliases_are_unique() -> None:
    found: dict[str, list[str]] = {}
    for module, path in modules():
        for node in parsed(path).body:
            name = ""
            if isinstance(node, ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id if re.match(r"[A-Z][a-z]", node.targets[0].id) else ""
            if name and not name.startswith("_"):
                found.setdefault(name, []).append(module)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_imports_have_no_cycles() -> None:
    graph = nx.DiGraph()
    names = {name for name, _ in modules()}
    for name, path in modules():
        for node in at_import(parsed(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                targets = imported(name, node, path.name == "__init__.py") & names
                graph.add_edges_from((name, target) for target in targets if target != name)
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert circles == []


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the descendants of a node that are executed when its module is imported."""
    for child in ast.iter_child_nodes(node):
        if not is_hidden(child):
            yield child
            yield from at_import(child)


def is_hidden(node: ast.AST) -> bool:
    """Returns whether imports inside a node are not executed when its module is imported."""
    typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return typing_only or isinstance(node, ast.FunctionDef)


def test_every_dependency_is_pinned_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [Requirement(r) for r in itertools.chain(project["dependencies"], *extras)]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(p.name): str(p.specifier).removeprefix("==") for p in pins}
    loose = [r.name for r in wanted if versions.get(canonicalize_name(r.name)) not in r.specifier]
    assert loose == []
