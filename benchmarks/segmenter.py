"""Trains the segmentation of colour pictures into ObjectNav's categories, and measures it.

    python -m benchmarks.segmenter [PICTURES] [EPOCHS]

Pictures are those of the head camera at random poses in training apartments, with random colours
(`colour_jitter=0.05`). The shares of correct pixels and the mean intersection over union are those
of 2,000 pictures in validation apartments. Takes 10 minutes of one
core. Writes `skills/objectnav/segmenter.safetensors`.
"""

import dataclasses
import sys
import time

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional

import tpsrl.sim
from skills.objectnav.segmenter import SIDES, WEIGHTS, Segmenter, to_tensor
from skills.objectnav.starts import objectnav_start
from skills.pointnav.starts import arm_free
from tpsrl.world.cameras import HEAD_CATEGORY
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.floor import CLOSED, random_base_pose

BATCH, RATE, JITTER = 64, 3e-3, 0.05
POSES = 32  # of each apartment in turn
VALIDATED = 2_000


def pictures(split: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns colours (count, H, W, 3) and categories (count, H, W) uint8 at random poses."""
    simulator, rng = tpsrl.sim.make(slots=12), np.random.default_rng(seed)
    sizes = {"head_rgb": SIDES, HEAD_CATEGORY: SIDES}
    colours = np.empty((count, *SIDES, 3), np.uint8)
    categories = np.empty((count, *SIDES), np.uint8)
    for row in range(count):
        if row % POSES == 0:
            episode = objectnav_start(row // POSES, split).episode
        pose = random_base_pose(episode.layout, rng, CLOSED)
        while not arm_free(episode.layout, pose):
            pose = random_base_pose(episode.layout, rng, CLOSED)
        simulator.reset([0], [dataclasses.replace(episode, robot_start=pose)])
        shown = simulator.look([0], sizes)
        colours[row], categories[row] = shown["head_rgb"][0], shown[HEAD_CATEGORY][0]
    return colours, categories


def jittered(colour: torch.Tensor) -> torch.Tensor:
    """Returns colours with a random factor for each picture and channel."""
    factor = 1.0 + JITTER * (2.0 * torch.rand(len(colour), 3, 1, 1) - 1.0)
    return (colour * factor).clamp(0.0, 1.0)


def train(count: int, epochs: int) -> Segmenter:
    """Trains a network on `count` pictures of training apartments."""
    torch.manual_seed(0)
    colours, categories = pictures("train", count, 0)
    print(f"{count} pictures of training apartments", flush=True)
    net = Segmenter()
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    total = epochs * (count // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=total)
    for epoch in range(epochs):
        begun, losses = time.perf_counter(), []
        for rows in torch.randperm(count)[: count // BATCH * BATCH].split(BATCH):
            colour = jittered(to_tensor(colours[rows.numpy()]))
            wanted = torch.from_numpy(categories[rows.numpy()]).long()
            loss = functional.cross_entropy(net(colour), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        took = time.perf_counter() - begun
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, {took:.0f} s", flush=True)
    return net


def measure(net: Segmenter) -> None:
    """Prints the quality of a network in validation apartments."""
    colours, wanted = pictures("val", VALIDATED, 1)
    found = np.concatenate([net.categories(part) for part in np.array_split(colours, 40)])
    print(f"correct pixels {100 * np.mean(found == wanted):.2f}%")
    overlaps = []
    for number, name in enumerate(CATEGORIES, 1):
        both = np.sum((found == number) & (wanted == number))
        either = np.sum((found == number) | (wanted == number))
        overlaps.append(both / either)
        print(f"{name}: intersection over union {overlaps[-1]:.3f}")
    print(f"mean {np.mean(overlaps):.3f}")


def main(count: str = "20000", epochs: str = "10") -> None:
    """Trains, measures and writes the network."""
    net = train(int(count), int(epochs)).eval()
    save_file({name: value.half() for name, value in net.state_dict().items()}, WEIGHTS)
    measure(net)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
