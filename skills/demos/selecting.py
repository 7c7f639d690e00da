"""Selection of a policy's inputs from demonstrations."""

from collections.abc import Iterable, Sequence

import numpy as np

from skills import registry
from skills.core import cameras, sensors
from skills.core.inputs import PolicyInputs
from skills.demos import store
from skills.demos.recording import Recording
from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import pictures_of
from tpsrl.rl.imitation.dataset import Demonstration
from tpsrl.world.cameras import HEAD_DEPTH, Sides


def load(
    folders: Sequence[str], inputs: PolicyInputs, left_out: Sequence[str] = ()
) -> list[Demonstration]:
    """Loads episodes from folders of demonstrations, with the given inputs.

    Args:
        folders: of demonstrations
        inputs: of the policy
        left_out: endings of episodes to skip; in timeouts of the expert, for example, it mostly
            stands before an obstacle without a plan

    Raises:
        UserError: a folder is damaged, has another skill, or lacks a sensor or a picture of the
            requested size.
    """
    found: list[Demonstration] = []
    skill, depth = inputs.skill, inputs.depth
    for folder in folders:
        note = store.read_note(folder)
        if note.skill != skill:
            raise UserError(
                f"demos: {folder} contains demonstrations of {note.skill}, not of {skill}"
            )
        if depth is not None and note.depth != depth:
            raise UserError(f"depth: {depth[0]}, but {folder} has {note.depth}")
        for picture, sides in inputs.cameras:
            if note.cameras.get(picture) != sides:
                has = cameras.text(_recorded(note)) or "none"
                raise UserError(f"cameras: {folder} has no {picture} of {sides}; it has {has}")
        held = PolicyInputs(skill, tuple(name for name, _ in note.sensors), note.depth)
        for name in inputs.sensors:
            if name not in held.sensors:
                has = ", ".join(held.sensors)
                raise UserError(f"sensors: {folder} has no '{name}'; it has {has}")
        known = sensors.known(registry.get(skill).definition)
        if any(name not in known or known[name].size != size for name, size in note.sensors):
            raise UserError(f"demos: {folder} has sensors unknown to {skill}; record it again")
        good = (episode for episode in store.read(folder) if episode.ended_by not in left_out)
        found += select(good, held, inputs)
    return found


def select(
    recordings: Iterable[Recording], held: PolicyInputs, inputs: PolicyInputs
) -> list[Demonstration]:
    """Converts recordings with inputs `held` to demonstrations with the inputs of a policy."""
    columns, pictures = held.places(inputs), pictures_of(inputs.shapes())
    return [_shown(recording.demonstration, columns, pictures) for recording in recordings]


def _recorded(note: store.DemosNote) -> dict[str, Sides]:
    head = {} if note.depth is None else {HEAD_DEPTH: note.depth}
    return head | dict(note.cameras)


def _shown(episode: Demonstration, columns: np.ndarray, pictures: Sequence[str]) -> Demonstration:
    seen = {"state": np.ascontiguousarray(episode.observation["state"][:, columns])}
    seen |= {name: episode.observation[name] for name in pictures}
    return Demonstration(seen, episode.label, episode.valid, episode.action)
