"""Draws the images of the robot's cameras, head and hand: colour, depth, classes and others.

    python -m benchmarks.cameras [PICTURE]

Of the views at Pick's start distances in the first validation episodes, it draws the one with the
most object pixels in the camera that sees fewer of them.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import tpsrl.sim
from benchmarks.head_depth import stand_before
from tpsrl.render.video import colour_depth
from tpsrl.rl.policy.towers import number_colours
from tpsrl.sim import datasets
from tpsrl.world.cameras import CAMERAS, CLASSES, PICTURES, split

EPISODES, SIDE, GAP, LINE = 20, 256, 8, 24
OBJECT = CLASSES.index("object")
# Colours by Okabe and Ito, which are distinguishable with any kind of colour vision.
PALETTE = np.array(
    [
        (0, 0, 0),
        (222, 203, 164),
        (200, 200, 200),
        (0, 114, 178),
        (86, 180, 233),
        (0, 158, 115),
        (213, 94, 0),
    ],
    np.uint8,
)
TITLES = {
    "rgb": "colour",
    "depth": "depth, 0 to 10 m",
    "semantic": "classes",
    "instance": "instances",
    "category": "categories",
}


def best_view() -> dict[str, np.ndarray]:
    """Returns the images (SIDE, SIDE, ...) of the best view by name."""
    simulator = tpsrl.sim.make(slots=30)
    rng = np.random.default_rng(0)
    best: dict[str, np.ndarray] = {}
    most = 0
    for episode in datasets.load("tidy_house", "val", EPISODES, num_objects=30):
        for target in episode.targets:
            start = stand_before(episode, episode.objects[target.object].pos, rng)
            if start is None:
                continue
            simulator.reset([0], [dataclasses.replace(episode, robot_start=start)])
            shown = simulator.look([0], dict.fromkeys(PICTURES, (SIDE, SIDE)))
            seen = [int((shown[f"{one}_semantic"] == OBJECT).sum()) for one in CAMERAS]
            if min(seen) > most:
                most, best = min(seen), {name: one[0] for name, one in shown.items()}
    return best


def in_colours(name: str, picture: np.ndarray) -> np.ndarray:
    """Converts an image to colours (SIDE, SIDE, 3) uint8."""
    kind = split(name)[1]
    if kind == "depth":
        return colour_depth(picture)
    if kind in ("instance", "category"):
        return (255.0 * number_colours().numpy()).astype(np.uint8)[picture]
    return PALETTE[picture] if kind == "semantic" else picture


def sheet(shown: dict[str, np.ndarray]) -> Image.Image:
    """Draws all images on one sheet, one row per camera, with a legend of the classes."""
    width = len(TITLES) * (SIDE + GAP) - GAP
    page = Image.new("RGB", (width, 2 * (LINE + SIDE) + GAP + 2 * LINE), "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(14)
    for row, camera in enumerate(CAMERAS):
        for column, (kind, title) in enumerate(TITLES.items()):
            x, y = column * (SIDE + GAP), row * (LINE + SIDE + GAP)
            name = f"{camera}_{kind}"
            draw.text((x, y + 4), f"{camera}: {title}", "black", font)
            page.paste(Image.fromarray(in_colours(name, shown[name])), (x, y + LINE))
    x, y = 0, page.height - LINE - 4
    for name, colour in zip(CLASSES, PALETTE.tolist(), strict=True):
        draw.rectangle((x, y + 4, x + 14, y + 18), tuple(colour), "grey")
        draw.text((x + 20, y + 3), name.replace("_", " "), "black", font)
        x += 36 + int(draw.textlength(name.replace("_", " "), font))
    return page


def main(path: str = "docs/img/cameras.png") -> None:
    """Draws the sheet and writes it."""
    sheet(best_view()).quantize(256, dither=Image.Dither.NONE).save(Path(path), optimize=True)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
