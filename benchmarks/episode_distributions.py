"""Distribution of episodes: a table with one column per file.

    python -m benchmarks.episode_distributions FILE.jsonl.gz [FILE.jsonl.gz ...]

The files are written by `tpsrl episodes`, generated or imported. Prints Markdown: receptacles of
objects, starts and goals of targets, their distances and heights, the number of objects on one
receptacle, and the share of episodes in which the arm cannot reach a start or goal.
"""

import collections
import math
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.world.access import faults
from tpsrl.world.doors import joints_at, moved_receptacles
from tpsrl.world.episode import Episode, ObjectPlacement, load_episodes
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import PlacedReceptacle
from tpsrl.world.objects import object_kind
from tpsrl.world.placement import footprint
from tpsrl.world.scenarios import RECEPTACLE_SETS, load_scenario

OVERHANG_M = 0.01
FAULTS = ("start out of reach", "goal out of reach", "start blocked", "goal blocked")

Position = Sequence[float]


def percent(flags: Iterable[bool]) -> str:
    values = list(flags)
    return f"{100 * sum(values) / len(values):.0f}%" if values else ""


def spread(values: Sequence[float], unit: str = "", digits: int = 1) -> str:
    low, middle, high = np.percentile(values, [10, 50, 90])
    return f"{middle:.{digits}f}{unit} ({low:.{digits}f} to {high:.{digits}f})"


def starts(episode: Episode) -> list[ObjectPlacement]:
    return [episode.objects[target.object] for target in episode.targets]


def carrier(
    name: str, pos: Position, placed: Sequence[PlacedReceptacle]
) -> PlacedReceptacle | None:
    """Returns the instance of a receptacle that is horizontally closest to a point."""

    def beside(place: PlacedReceptacle) -> float:
        local = np.abs(place.rotation.T @ (np.asarray(pos) - place.pos))[:2]
        return float((local - place.half[:2]).max())

    return min((r for r in placed if r.name == name), key=beside, default=None)


def overhang(
    kind_of: str, pos: Position, quat: Position, name: str, placed: Sequence[PlacedReceptacle]
) -> float:
    """Returns how far (m) an object's outline extends beyond its receptacle's box."""
    place = carrier(name, pos, placed)
    if place is None:
        return 0.0
    turn, kind = quat_matrix(quat), object_kind(kind_of)
    prism = footprint(kind, pos[0], pos[1], math.atan2(turn[1, 0], turn[0, 0]), 0.0)
    local = (prism.corners - place.pos[:2]) @ place.rotation[:2, :2]
    return float((np.abs(local) - place.half[:2]).max())


def overhangs(episodes: Sequence[Episode], goals: bool) -> list[bool]:
    found = []
    for episode in episodes:
        placed = moved_receptacles(episode.layout, joints_at(episode.articulation))
        if goals:
            things = [(episode.objects[t.object], t.goal, t.receptacle) for t in episode.targets]
        else:
            things = [(o, o.pos, o.receptacle) for o in episode.objects]
        for thing, pos, name in things:
            found.append(overhang(thing.name, pos, thing.quat, name, placed) > OVERHANG_M)
    return found


def bottoms(episodes: Sequence[Episode]) -> list[float]:
    """Returns the heights (m) of the surfaces on which the targets start and end."""
    result = []
    for episode in episodes:
        for target in episode.targets:
            thing = episode.objects[target.object]
            half = object_kind(thing.name).half[2]
            result += [thing.pos[2] - half, target.goal[2] - half]
    return result


def fullest(episodes: Sequence[Episode]) -> list[float]:
    return [max(collections.Counter(o.receptacle for o in e.objects).values()) for e in episodes]


def ways(episodes: Sequence[Episode]) -> list[float]:
    pairs = [(e.objects[t.object].pos, t.goal) for e in episodes for t in e.targets]
    return [math.dist(start, goal) for start, goal in pairs]


def boxes(episodes: Sequence[Episode]) -> list[float]:
    return [sum(object_kind(o.name).primitive == "box" for o in e.objects) for e in episodes]


def own(episodes: Sequence[Episode]) -> list[bool]:
    pairs = [(e.objects[t.object].receptacle, t.receptacle) for e in episodes for t in e.targets]
    return [start == goal for start, goal in pairs]


def refused(episodes: Sequence[Episode]) -> dict[str, str]:
    """Returns the share of episodes with each fault that a `reachable` scenario would reject."""
    found = []
    for episode in episodes:
        scenario = load_scenario(episode.scenario)
        known = len(scenario.targets) >= len(episode.targets)
        found.append(faults(scenario, episode) if known else [])
    shares = {name: percent(name in faults_ for faults_ in found) for name in FAULTS}
    return shares | {"any of these": percent(bool(faults_) for faults_ in found)}


def receptacle_rows(columns: Sequence[Sequence[Episode]]) -> list[list[str]]:
    names = [*RECEPTACLE_SETS["open_receptacles"], "fridge", *RECEPTACLE_SETS["drawers"], ""]
    groups: dict[str, Callable[[Episode], list[str]]] = {
        "objects": lambda e: [o.receptacle for o in e.objects],
        "starts": lambda e: [o.receptacle for o in starts(e)],
        "goals": lambda e: [t.receptacle for t in e.targets],
    }
    rows = []
    for what, of in groups.items():
        found = [[where for e in episodes for where in of(e)] for episodes in columns]
        for name in names:
            if any(name in places for places in found):
                shares = [percent(where == name for where in places) for places in found]
                rows.append([f"{what} on {name or 'none of them'}", *shares])
    return rows


def rows_of(columns: Sequence[Sequence[Episode]]) -> list[list[str]]:
    def row(title: str, value: Callable[[Sequence[Episode]], str]) -> list[str]:
        return [title, *(value(episodes) for episodes in columns)]

    rows = [
        row("episodes", lambda e: str(len(e))),
        row("layouts", lambda e: str(len({one.layout for one in e}))),
        *receptacle_rows(columns),
        row("goals on the start's receptacle", lambda e: percent(own(e))),
        row("start to goal", lambda e: spread(ways(e), " m")),
        row("height of starts and goals", lambda e: spread(bottoms(e), " m", 2)),
        row("objects over the edge by > 1 cm", lambda e: percent(overhangs(e, False))),
        row("goals over the edge by > 1 cm", lambda e: percent(overhangs(e, True))),
        row("objects on the fullest receptacle", lambda e: spread(fullest(e), digits=0)),
        row("boxes among the objects", lambda e: spread(boxes(e), digits=0)),
    ]
    shares = [refused(episodes) for episodes in columns]
    rows += [[f"episodes with {name}", *(s[name] for s in shares)] for name in shares[0]]
    return rows


def main(paths: Sequence[str]) -> int:
    if not paths:
        print(__doc__)
        return 2
    try:
        columns = [load_episodes(path) for path in paths]
    except UserError as error:
        print(f"episode_distributions: {error}", file=sys.stderr)
        return 2
    names = [path.rpartition("/")[2].removesuffix(".jsonl.gz") for path in paths]
    for line in (["", *names], ["---"] * (len(names) + 1), *rows_of(columns)):
        print(f"| {' | '.join(line)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
