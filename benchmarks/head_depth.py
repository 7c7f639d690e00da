"""Visibility of the target to the head camera at Pick's start distances, with an image.

    python -m benchmarks.head_depth [EPISODES] [PICTURE]

For every target of the first validation episodes, the robot is placed with its arm at rest on free
floor 0.7 to 1.5 m away, facing the target to within Navigate's 15 degrees. Pixels of the target are
those whose depth changes when the target is removed from the episode.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

import tpsrl.sim
from skills.navigate.task import NavigateThresholds
from tpsrl.render.video import colour_depth
from tpsrl.sim import datasets
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M, floor_map, main_floor

NEAREST_M, FARTHEST_M = 0.7, 1.5
SIDE = 128
ENOUGH_PIXELS = 12  # at 128 x 128; a quarter of that at 64 x 64
SAME = 1e-4  # share of 10 m: depths within 1 mm count as equal
BINS_M = (0.7, 0.9, 1.1, 1.3, 1.5)
TILE, COLUMNS, ROWS = 256, 3, 2
OUTLINE = (255, 40, 40)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Head depth image (128, 128) with the mask of the target (128, 128) bool."""

    name: str
    receptacle: str
    distance_m: float
    depth: np.ndarray
    target: np.ndarray

    @property
    def visible(self) -> bool:
        """Whether at least `ENOUGH_PIXELS` of the target are visible."""
        return bool(self.target.sum() >= ENOUGH_PIXELS)


def views(episodes: list[Episode], seed: int = 0) -> Iterator[View]:
    """Yields a view of every target for which a free base pose is found."""
    simulator = tpsrl.sim.make(slots=30)
    rng = np.random.default_rng(seed)
    for episode in episodes:
        for target in episode.targets:
            start = stand_before(episode, episode.objects[target.object].pos, rng)
            if start is not None:
                yield view(simulator, episode, target.object, start)


def stand_before(
    episode: Episode, point: tuple[float, float, float], rng: np.random.Generator
) -> tuple[float, float, float] | None:
    """Draws a base pose on free floor near a point; returns None if 200 draws are not free."""
    floor, main = floor_map(episode.layout), main_floor(episode.layout)
    turn = NavigateThresholds().angle_rad
    for _ in range(200):
        distance = rng.uniform(NEAREST_M, FARTHEST_M)
        angle = rng.uniform(-math.pi, math.pi)
        x, y = point[0] - distance * math.cos(angle), point[1] - distance * math.sin(angle)
        row, column = int((y - floor.origin[1]) / CELL_M), int((x - floor.origin[0]) / CELL_M)
        inside = 0 <= row < main.shape[0] and 0 <= column < main.shape[1]
        if inside and main[row, column] and floor.distance[row, column] > BASE_RADIUS:
            return x, y, angle + rng.uniform(-turn, turn)
    return None


def view(
    simulator: Simulator, episode: Episode, number: int, start: tuple[float, float, float]
) -> View:
    """Renders head depth from a base pose, with and without object `number`."""
    thing = episode.objects[number]
    others = (*episode.objects[:number], *episode.objects[number + 1 :])
    pictures = []
    for objects in (episode.objects, others):
        record = dataclasses.replace(episode, objects=objects, targets=(), robot_start=start)
        simulator.reset([0], [record])
        pictures.append(simulator.depth([0], SIDE, SIDE)[0])
    distance = math.dist(start[:2], thing.pos[:2])
    target = np.abs(pictures[0] - pictures[1]) > SAME
    return View(thing.name, thing.receptacle, distance, pictures[0], target)


def table(found: list[View]) -> str:
    """Returns a table of the share of views with a visible target, by distance and receptacle."""
    lines = []
    for low, high in itertools.pairwise(BINS_M):
        lines.append(_row(f"{low} to {high} m", [v for v in found if low <= v.distance_m < high]))
    for place in sorted({v.receptacle for v in found}):
        lines.append(_row(place, [v for v in found if v.receptacle == place]))
    return "\n".join([*lines, _row("all", found)])


def _row(name: str, chosen: list[View]) -> str:
    seen = sum(v.visible for v in chosen)
    pixels = np.median([v.target.sum() for v in chosen]) if chosen else 0
    return f"{name:14s} {seen:4d} of {len(chosen):4d}   median {pixels:5.0f} pixels"


def sheet(chosen: list[View]) -> Image.Image:
    """Draws the views side by side, with the target outlined in red."""
    picture = Image.new("RGB", (COLUMNS * TILE, ROWS * TILE))
    for number, one in enumerate(chosen[: COLUMNS * ROWS]):
        block = np.ones((TILE // SIDE, TILE // SIDE), np.uint8)
        pixels = np.kron(colour_depth(one.depth), block[..., None])
        pixels[_rim(np.kron(one.target, block).astype(bool))] = OUTLINE
        tile = Image.fromarray(pixels)
        text = f"{one.name[4:].replace('_', ' ')}, {one.receptacle}, {one.distance_m:.2f} m"
        pen, font = ImageDraw.Draw(tile), ImageFont.load_default(13)
        pen.text((6, 4), text, (255, 255, 255), font, stroke_width=1, stroke_fill=(0, 0, 0))
        picture.paste(tile, ((number % COLUMNS) * TILE, (number // COLUMNS) * TILE))
    return picture


def _rim(mask: np.ndarray) -> np.ndarray:
    """Returns the mask of a two-pixel outline around a mask."""
    return ndimage.binary_dilation(mask, iterations=3) & ~ndimage.binary_dilation(mask)


def spread(found: list[View]) -> list[View]:
    """Selects views with a visible target, from near to far, each on a different receptacle."""
    chosen: list[View] = []
    for distance in np.linspace(NEAREST_M, FARTHEST_M, COLUMNS * ROWS):
        used = {v.receptacle for v in chosen}
        free = [v for v in found if v.visible and v.receptacle not in used]
        if free:
            chosen.append(min(free, key=lambda v: abs(v.distance_m - distance)))
    return chosen


def main() -> None:
    """Prints the table and writes the image."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    path = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/img/head_depth.png")
    found = list(views(datasets.load("tidy_house", "val", count)))
    print(table(found))
    chosen = spread(found) or found
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet(chosen).save(path, optimize=True)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
