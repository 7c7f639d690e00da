"""Import of habitat-lab's rearrangement episodes, converted to the frames and names of tpsrl.

The files (`.json` or `.json.gz`) are written by habitat-lab's generator (0.3.3,
datasets/rearrange/rearrange_dataset.py). Habitat's world is y up: (X, Y, Z) in tpsrl is (x, -z, y)
in Habitat, and a rotation about Habitat's y axis is the same rotation about the z axis here.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.runtime import files
from tpsrl.world.doors import joints_at, moved_receptacles
from tpsrl.world.episode import FARTHEST, LONGEST_TEXT, Episode, ObjectPlacement, Target
from tpsrl.world.generator import DROP_M
from tpsrl.world.geometry import matrix_quat, quat_matrix, yaw_quat
from tpsrl.world.layouts import PlacedReceptacle, load_layout_set
from tpsrl.world.objects import ObjectKind, object_kind, object_kinds
from tpsrl.world.placement import footprint, furniture
from tpsrl.world.slots import CAPACITIES

_SET = "replica_cad"
TO_OURS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
# Possible frames of an object's transform: that of YCB, z up, or that of Habitat, y up.
FRAMES = {"z up": np.eye(3), "y up": TO_OURS.T}

# YCB's meshes of boxes are not aligned with their axes. These are their rotations about z (rad).
# The magnitude is from the bounding boxes of mesh and box. The sign is the one with which
# neighbouring objects of 100 published Tidy House episodes overlap least. Cracker and sugar box are
# off by less than 8 degrees, with a sign that the episodes do not determine.
MESH_YAW = {
    "008_pudding_box": math.radians(26.5),
    "009_gelatin_box": math.radians(-76.6),
    "010_potted_meat_can": math.radians(6.2),
}

# Links in the order of habitat-sim 0.3.3: the body is 0, its children follow sorted by the names of
# their joints. On the counter, drawer4 is on right_slide_bottom and drawer3 on right_slide_top.
LINKS = {
    "fridge": ("body", "bottom_door", "top_door"),
    "kitchen_counter": (
        "body",
        "drawer1_bottom",
        "drawer1_top",
        "drawer2_bottom",
        "drawer2_middle",
        "drawer2_top",
        "drawer4",
        "drawer3",
    ),
}
_NAMES_OF_TARGETS = {
    "any_targets": "tidy_house",
    "obj0_target": "prepare_groceries",
    "bowl_target": "set_table",
}
_NAME_OF_DATASET = re.compile(r"_\d+k?_\d+k?$")  # tidy_house_10k_1k: training and validation sizes
_ON_SURFACE_M = 0.01  # an object within this distance of a surface stands on it
_FALL_M = 0.10  # largest initial height of an object above its surface
_BESIDE_M = 0.12  # the centre of an overhanging object may be this far outside a receptacle's box
_ASIDE_M = 0.16  # largest distance by which an object is moved out of furniture
_INSIDE_M = 0.10  # largest initial depth of an object inside its surface
_EDGE_M = 0.01  # margin at the edge of a surface
_INTO_M = 0.005  # allowed overlap with furniture, which ends when the object settles
_UPRIGHT = math.cos(math.radians(10.0))
_RINGS = 16  # number of distances, and of directions, in the search for a free place
_JOINT_SLACK = 0.02  # rad or m that a position may be beyond the range of its joint
_SKEW = 0.01  # largest deviation of a rotation matrix from orthonormality
_MOST_VALUES = 20_000_000  # values in a file; 10 000 episodes of 30 objects have 7 million


class Unusable(Exception):
    """Raised if an episode cannot be converted; the message is a short reason."""


@dataclasses.dataclass(slots=True)
class Imported:
    """Result of an import: drafts that have to settle, changes, and refused episodes.

    `start_drawn` names the drafts without a robot start, which has to be drawn. `changed` counts
    changes by their description. `refused` maps names of episodes to reasons. `frame` is the key of
    `FRAMES` in which the transforms of the file's objects are given.
    """

    drafts: list[Episode]
    start_drawn: set[str]
    changed: collections.Counter[str]
    refused: dict[str, str]
    frame: str


def read(path: str | Path, scenario: str | None = None) -> Imported:
    """Reads the episodes of a file in order.

    Args:
        path: path of the file
        scenario: scenario of the episodes; by default derived from the file

    Raises:
        UserError: the file is absent, damaged, or not in habitat-lab's format.
    """
    records = _records(Path(path))
    frame = _frame(records)
    stem = Path(path).name.split(".")[0]
    imported = Imported([], set(), collections.Counter(), {}, frame)
    names: set[str] = set()
    for number, record in enumerate(records):
        name = f"{stem}_{record.get('episode_id', number)}"
        if name in names:
            name = f"{name}_at_{number}"
            imported.changed["duplicate id, extended by a number"] += 1
        names.add(name)
        if not name.isprintable() or len(name) > LONGEST_TEXT:
            raise UserError(
                f"import: {path}: episode {number}: episode_id: '{name[:LONGEST_TEXT]}' cannot be "
                f"printed, or has more than {LONGEST_TEXT} characters"
            )
        try:
            reader = _Reader(record, FRAMES[frame], imported.changed)
            draft = reader.episode(name, scenario or _scenario(record, stem))
            _check_coordinates(draft)
        except Unusable as reason:
            imported.refused[name] = str(reason)
            continue
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            where = f"import: {path}: episode {number}"
            raise UserError(f"{where}: {type(error).__name__} {error}") from None
        imported.drafts.append(draft)
        if not any(record["start_position"]):
            imported.start_drawn.add(name)
    return imported


def _check_coordinates(draft: Episode) -> None:
    places = [draft.robot_start, *(o.pos for o in draft.objects), *(t.goal for t in draft.targets)]
    for place in places:
        if not all(abs(coordinate) <= FARTHEST for coordinate in place):
            shown = ", ".join(f"{coordinate:g}" for coordinate in place)
            raise Unusable(f"a position ({shown}) is beyond {FARTHEST:g} m")


def _records(path: Path) -> list[dict[str, Any]]:
    data = files.read_data(path, "import")
    if data.count(b",") > _MOST_VALUES:
        raise UserError(f"import: {path} has more than {_MOST_VALUES:,} values")
    try:
        content = files.parse_json(data)
    except ValueError as error:
        raise UserError(f"import: {path} is damaged, or not JSON ({error})") from None
    records = content.get("episodes") if isinstance(content, dict) else None
    if not isinstance(records, list) or not records:
        raise UserError(f"import: {path} contains no episodes; habitat-lab's files have 'episodes'")
    needed = ("scene_id", "rigid_objs", "targets", "start_position", "start_rotation")
    for number, record in enumerate(records):
        missing = [key for key in needed if not isinstance(record, dict) or key not in record]
        if missing:
            raise UserError(f"import: {path}: episode {number}: field '{missing[0]}' is missing")
    return records


def _scenario(record: Mapping[str, Any], stem: str) -> str:
    """Returns the scenario by the samplers of the targets, or by the name of the file.

    Other datasets of habitat-lab, such as rearrange_easy_10k_1k, use the samplers of Tidy House
    too; they keep the name of the file.
    """
    labels = dict(record.get("info") or {}).get("object_labels") or {}
    others = (*config.preset_names("dataset"), "all_receptacles", "rearrange")
    of_another = bool(_NAME_OF_DATASET.search(stem)) or stem.startswith(others)
    for label in labels.values():
        known = _NAMES_OF_TARGETS.get(str(label).split("|")[0])
        if known and (stem.startswith(known) or not of_another):
            return known
    return re.sub(r"\W", "_", stem)


def _frame(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the key of `FRAMES` with which most objects stand on a surface."""
    counts = collections.Counter[str]()
    for record in records[:20]:
        for frame, turn in FRAMES.items():
            try:
                reader = _Reader(record, turn, collections.Counter())
            except (Unusable, KeyError, TypeError, ValueError, IndexError, AttributeError):
                continue
            counts[frame] += reader.standing()
    return max(FRAMES, key=lambda frame: counts[frame])


class _Reader:
    """Converts one record.

    Args:
        record: the episode's JSON record
        turn: rotation of `FRAMES` for the objects
        changed: counter that receives the changes
    """

    def __init__(
        self, record: Mapping[str, Any], turn: np.ndarray, changed: collections.Counter[str]
    ) -> None:
        self._record, self._turn, self._changed = record, turn, changed
        name = Path(str(record["scene_id"])).name.split(".")[0]
        layouts = load_layout_set(_SET).layouts
        if name not in layouts:
            raise Unusable(f"unknown layout '{name}' (valid: {len(layouts)}, v3_sc0 to v3_sc3)")
        self._layout = layouts[name]
        self._articulation = self._joints(record.get("ao_states") or {})
        joints = joints_at(self._articulation)
        self._receptacles = moved_receptacles(f"{_SET}/{name}", joints)
        self._furniture = furniture(f"{_SET}/{name}", joints)
        self._names = self._handles()
        most = max(CAPACITIES)
        if not 1 <= len(self._names) <= most:
            raise Unusable(f"{len(self._names)} objects, must be between 1 and {most}")

    def _handles(self) -> list[tuple[str, str, np.ndarray]]:
        """Returns name, handle and transform of each object; handles number objects of one name."""
        counts = collections.Counter[str]()
        known, result = object_kinds(), []
        for file, transform in self._record["rigid_objs"]:
            name = str(file).split("/")[-1].split(".")[0]
            if name not in known:
                raise Unusable(f"unknown object '{name}'")
            matrix = _matrix(transform, f"rigid_objs: the transform of {name}")
            result.append((name, f"{name}_:{counts[name]:04d}", matrix))
            counts[name] += 1
        return result

    def standing(self) -> int:
        """Returns the number of objects that rest upright on a surface."""
        count = 0
        for name, _, matrix in self._names:
            pos, turn = self._pose(name, matrix)
            found = self._under(object_kind(name), pos, turn)
            near = found is not None and abs(_bottom(object_kind(name), pos, turn) - found.surface)
            count += near is not False and near < _ON_SURFACE_M and turn[2, 2] > 0.9
        return count

    def episode(self, name: str, scenario: str) -> Episode:
        """Converts the record to a draft.

        Raises:
            Unusable: the record refers to something that does not exist or cannot be placed.
        """
        objects: list[ObjectPlacement] = []
        index: dict[str, int] = {}
        named = self._record.get("name_to_receptacle") or {}
        for kind, handle, matrix in self._names:
            index[handle] = len(objects)
            objects.append(self._object(kind, matrix, named.get(handle, "")))
        targets = []
        for handle, transform in self._record["targets"].items():
            if handle not in index:
                raise Unusable(f"target '{handle}' is not one of the objects")
            matrix = _matrix(transform, f"targets: the transform of {handle}")
            pos, _, found = self._put(self._names[index[handle]][0], matrix, "goal")
            gx, gy, gz = (float(v) for v in pos)
            targets.append(Target(index[handle], (gx, gy, gz), found.name if found else ""))
        if not targets:
            raise Unusable("no targets, must have at least one")
        x, _, z = (float(v) for v in self._record["start_position"])
        _, turn, _, real = (float(v) for v in self._record["start_rotation"])
        return Episode(
            id=name,
            scenario=scenario,
            split=self._layout.split,
            layout=f"{_SET}/{self._layout.name}",
            robot_start=(x, -z, 2 * math.atan2(turn, real)),
            objects=tuple(objects),
            targets=tuple(targets),
            articulation=self._articulation,
        )

    def _pose(self, name: str, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns centre (3,) and rotation (3, 3) of the primitive."""
        turn = TO_OURS @ matrix[:3, :3] @ self._turn
        return TO_OURS @ matrix[:3, 3], turn @ quat_matrix(yaw_quat(MESH_YAW.get(name, 0.0)))

    def _object(self, name: str, matrix: np.ndarray, named: str) -> ObjectPlacement:
        pos, turn, found = self._put(name, matrix, "object")
        kind = object_kind(name)
        if found is not None and turn[2, 2] > _UPRIGHT:
            pos = self._inward(pos, found)
            pos = self._aside(kind, pos, turn, found)
        x, y, z = (float(v) for v in pos)
        receptacle = _short(named) or (found.name if found else "")
        return ObjectPlacement(name, (x, y, z), matrix_quat(turn), receptacle)

    def _put(
        self, name: str, matrix: np.ndarray, what: str
    ) -> tuple[np.ndarray, np.ndarray, PlacedReceptacle | None]:
        """Returns pose and receptacle of an object or goal, raised if it is inside its surface."""
        kind = object_kind(name)
        pos, turn = self._pose(name, matrix)
        if turn[2, 2] > _UPRIGHT:  # a mesh may lean on a few points, a primitive stands flat
            turn = quat_matrix(yaw_quat(math.atan2(turn[1, 0], turn[0, 0])))
        found = self._under(kind, pos, turn)
        if found is None:
            self._changed[f"{what} on no known receptacle"] += 1
            return pos, turn, None
        up = found.surface + DROP_M - _bottom(kind, pos, turn)
        if up > _ON_SURFACE_M:
            self._changed[f"{what} raised by 1 to {100 * _INSIDE_M:.0f} cm onto its surface"] += 1
        return pos + np.array([0.0, 0.0, up if up > -_ON_SURFACE_M else 0.0]), turn, found

    def _inward(self, pos: np.ndarray, on: PlacedReceptacle) -> np.ndarray:
        """Moves a centre inward from the edge of a surface, where the object would tip over."""
        local = on.rotation.T @ (pos - on.pos)
        inner = on.half[:2] - _EDGE_M
        over = np.abs(local[:2]) - inner
        if not (0.0 < over.max() < 2 * _EDGE_M):
            return pos
        self._changed[f"object moved by up to {200 * _EDGE_M:.0f} cm from the edge"] += 1
        local[:2] = np.clip(local[:2], -inner, inner)
        moved: np.ndarray = on.pos + on.rotation @ local
        return moved

    def _aside(
        self, kind: ObjectKind, pos: np.ndarray, turn: np.ndarray, on: PlacedReceptacle
    ) -> np.ndarray:
        """Moves the centre of an upright object out of furniture by the least distance.

        The centre stays over the receptacle `on`.

        Raises:
            Unusable: no place within `_ASIDE_M` is free.
        """
        yaw, bottom = math.atan2(turn[1, 0], turn[0, 0]), float(pos[2]) - kind.half[2]
        for radius in np.linspace(0.0, _ASIDE_M, _RINGS + 1):
            for angle in np.linspace(0.0, 2 * math.pi, _RINGS, endpoint=False):
                x = float(pos[0] + radius * math.cos(angle))
                y = float(pos[1] + radius * math.sin(angle))
                over = radius == 0.0 or on.over(np.array([x, y, pos[2]]))
                if over and self._furniture.fits(footprint(kind, x, y, yaw, bottom), -_INTO_M):
                    if radius > 0.0:
                        self._changed[
                            "object moved out of furniture, whose collision shapes are coarser here"
                        ] += 1
                    return np.array([x, y, pos[2]])
        raise Unusable(f"{kind.name} is inside furniture")

    def _under(
        self, kind: ObjectKind, pos: np.ndarray, turn: np.ndarray
    ) -> PlacedReceptacle | None:
        """Returns the highest receptacle that is close below an object's centre, or None."""
        bottom = _bottom(kind, pos, turn)
        found = None
        for receptacle in self._receptacles:
            local = np.abs(receptacle.rotation.T @ (pos - receptacle.pos))[:2]
            beside = bool((local < receptacle.half[:2] + _BESIDE_M).all())
            near = -_INSIDE_M < bottom - receptacle.surface < _FALL_M
            near = near and float(pos[2]) > receptacle.surface
            if beside and near and (found is None or receptacle.surface > found.surface):
                found = receptacle
        return found

    def _joints(self, states: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Returns the start positions of doors and drawers by marker, open ones only.

        Raises:
            Unusable: a position is outside the range of its joint.
        """
        bodies, found = load_layout_set(_SET).bodies, {}
        for handle, values in states.items():
            body = str(handle).split("_:")[0]
            names = LINKS.get(body, ())
            links = {link.name: link for link in bodies[body].links} if names else {}
            for number, value in values.items():
                known = names[int(number)] if int(number) < len(names) else f"link {number}"
                link = links.get(known)
                if link is None:
                    if abs(float(value)) > _JOINT_SLACK:
                        self._changed[f"{body}/{known} closed, since it is fixed here"] += 1
                    continue
                low, high = link.range
                if not low - _JOINT_SLACK <= float(value) <= high + _JOINT_SLACK:
                    raise Unusable(f"{body}/{known}: {value}, must be between {low} and {high}")
                found[link.key] = min(max(float(value), low), high)
        return {marker: value for marker, value in found.items() if value != 0.0}


def _matrix(transform: Any, what: str) -> np.ndarray:
    """Returns a rigid transform as an array (4, 4).

    Raises:
        ValueError: the transform is not a 4 x 4 matrix of finite numbers.
        Unusable: the transform scales or shears, or its position is too far away.
    """
    matrix = np.array(transform, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all():
        raise ValueError(f"{what} must be 4 x 4 and finite")
    turn = matrix[:3, :3]
    rigid = np.abs(turn).max() < 2.0 and np.abs(turn @ turn.T - np.eye(3)).max() < _SKEW
    if not rigid or np.abs(matrix[:3, 3]).max() > FARTHEST:
        raise Unusable(f"{what} is not a rotation with a position within {FARTHEST:g} m")
    return matrix


def _short(name: str) -> str:
    """Returns the short name of habitat-lab's receptacle "OBJECT|RECEPTACLE", "" if unknown."""
    return load_layout_set(_SET).aliases.get(name.split("|")[-1], "")


def _bottom(kind: ObjectKind, pos: np.ndarray, turn: np.ndarray) -> float:
    """Returns the height of an object's lowest point, metres."""
    hx, hy, hz = kind.half
    if kind.primitive == "sphere":
        return float(pos[2] - hx)
    if kind.primitive == "cylinder":
        upright = min(abs(float(turn[2, 2])), 1.0)
        return float(pos[2] - hz * upright - hx * math.sqrt(1.0 - upright * upright))
    return float(pos[2] - np.abs(turn[2]) @ (hx, hy, hz))
