"""Home of a recording as a viser scene."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import trimesh
import viser

from eval.viewing.recording import EpisodeRecording, Moment
from tpsrl.render.shapes import Shape
from tpsrl.world.layouts import Vec3

_WALL_OPACITY = 0.12
_GOAL, _OTHER_GOAL = (38, 217, 89), (140, 190, 242)
_GOAL_RADIUS_M = 0.06
_GOAL_OPACITY = 0.5


class HomeScene:
    """One home below the scene node `name`, shifted by `offset` (m)."""

    def __init__(
        self, server: viser.ViserServer, name: str, recording: EpisodeRecording, offset: Vec3
    ) -> None:
        self._server, self._name = server, name
        self.offset = np.array(offset)
        floors = [shape.pos for shape in recording.shapes if shape.kind == "plane"]
        self.middle = self.offset + (floors[0] if floors else 0.0)  # of the apartment
        server.scene.add_frame(name, show_axes=False, position=offset)
        count = len(recording.moments[0].poses)
        self._bodies = [
            server.scene.add_frame(f"{name}/bodies/{row}", show_axes=False) for row in range(count)
        ]
        self._walls = []
        for number, shape in enumerate(recording.shapes):
            added = self._add(number, shape)
            if shape.part == "wall" and shape.kind != "plane":
                self._walls.append(added)
        for target in recording.episode.targets:
            server.scene.add_icosphere(
                f"{name}/goals/{target.object}",
                radius=_GOAL_RADIUS_M,
                color=_GOAL,
                opacity=_GOAL_OPACITY,
                position=target.goal,
            )

    def show(self, moment: Moment) -> None:
        """Moves the bodies to their poses at a moment."""
        for body, pose in zip(self._bodies, moment.poses.astype(np.float64), strict=True):
            body.position, body.wxyz = pose[:3], pose[3:]

    def show_walls(self, visible: bool) -> None:
        """Shows or hides the walls."""
        for wall in self._walls:
            wall.visible = visible

    def _add(self, number: int, shape: Shape) -> Any:
        scene = self._server.scene
        parent = "still" if shape.body < 0 else f"bodies/{shape.body}"
        name = f"{self._name}/{parent}/{number}_{shape.name.replace('/', '_')}"
        colour = np.array(shape.colour)
        pose: dict[str, Any] = {"position": shape.pos, "wxyz": shape.quat}
        x, y, z = shape.size
        if shape.kind == "box":
            opacity = _WALL_OPACITY if shape.part == "wall" else None
            pose |= {"opacity": opacity, "cast_shadow": opacity is None}
            return scene.add_box(name, colour, (2 * x, 2 * y, 2 * z), **pose)
        if shape.kind == "plane":
            return scene.add_box(name, colour, (2 * x, 2 * y, 0.002), **pose)
        if shape.kind == "sphere":
            return scene.add_icosphere(name, x, colour, **pose)
        if shape.kind == "cylinder":
            return scene.add_cylinder(name, x, 2 * y, colour, **pose)
        mesh = trimesh.creation.capsule(height=2 * y, radius=x, count=(24, 24))
        return scene.add_mesh_simple(name, mesh.vertices, mesh.faces, color=colour, **pose)


def width(recordings: Sequence[EpisodeRecording]) -> float:
    """Returns the distance (m) along x between neighbouring homes."""
    floors = [s for recording in recordings for s in recording.shapes if s.kind == "plane"]
    return max((2 * floor.size[0] for floor in floors), default=8.0) + 1.0
