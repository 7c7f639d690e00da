"""Compiled model of a home, and its adaptation to an apartment and an episode.

Everything that an episode changes is a number in a model field (`MUTABLE_FIELDS`), so a home is
reset without recompilation, and a batch engine can hold a different apartment in each world.
"""

import dataclasses
import functools

import mujoco
import numpy as np

from tpsrl.errors import UserError
from tpsrl.render.bvh import Tree, build
from tpsrl.sim.mjcf.home import PARK_Z, home_spec
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import ARM
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import Box, Layout, LayoutSet, load_layout_set
from tpsrl.world.objects import ObjectKind
from tpsrl.world.slots import CAPACITIES, PRIMITIVES
from tpsrl.world.state import JOINTS

# Every model field that is written after compilation.
MUTABLE_FIELDS = (
    "body_pos",
    "body_quat",
    "body_mass",
    "body_subtreemass",
    "body_inertia",
    "body_invweight0",
    "body_gravcomp",
    "dof_invweight0",
    "dof_M0",
    "dof_length",
    "geom_size",
    "geom_rbound",
    "geom_aabb",
    "geom_pos",
    "geom_quat",
    "geom_rgba",
    "geom_margin",
    "eq_data",
    "bvh_child",
    "bvh_nodeid",
    "bvh_aabb",
)
# Fields that mujoco-warp cannot batch: bounding volumes and dof_M0, which only the C engine has,
# and dof_length, which only scales the angular velocity below which a body may fall asleep.
C_ENGINE_FIELDS = ("dof_M0", "dof_length", "bvh_child", "bvh_nodeid", "bvh_aabb")

# Lets rolling cans come to rest, as Bullet's angular damping does in HAB; N m s/rad.
_OBJECT_ANGULAR_DAMPING = 3e-4


@dataclasses.dataclass(frozen=True, slots=True)
class HomeModel:
    """Compiled model of a home and the addresses of its parts; shared by all homes of an engine.

    `slot_*` are indexed by slot, `joint_*` and `marker_*` are in the order of `JOINTS`.
    """

    layout_set: LayoutSet
    capacity: int
    model: mujoco.MjModel
    base_qpos: np.ndarray  # (3,)
    base_dof: np.ndarray  # (3,)
    arm_qpos: np.ndarray  # (7,)
    slot_body: np.ndarray
    slot_geom: np.ndarray  # (capacity, 3) in the order of PRIMITIVES
    slot_qpos: np.ndarray  # address of the first of seven
    slot_dof: np.ndarray  # address of the first of six
    slot_weld: np.ndarray  # equality id
    joint_qpos: np.ndarray  # (5,)
    marker_body: np.ndarray  # (5,)
    marker_local: np.ndarray  # (5, 3)
    marker_connect: np.ndarray  # (5,) equality ids
    cup_site: int
    cup_geom: int
    cup_body: int
    head_camera: int
    robot_geom: np.ndarray  # (ngeom,) bool
    floor_geom: int
    geom_slot: np.ndarray  # (ngeom,) slot of an object's geom, else -1
    geom_grasp: np.ndarray  # (ngeom,) slot; capacity + index into JOINTS for a link; else -1
    furniture_geom: np.ndarray  # geoms of all bodies' own boxes, in the order of the layout set

    def apply_layout(self, model: mujoco.MjModel, layout: Layout) -> None:
        """Poses the furniture; the model's data must then be forwarded with sleep disabled."""
        pos, quat, tree = _posed(self.layout_set.name, self.capacity, layout.name)
        model.geom_pos[self.furniture_geom] = pos
        model.geom_quat[self.furniture_geom] = quat
        nodes = slice(model.body_bvhadr[0], model.body_bvhadr[0] + model.body_bvhnum[0])
        model.bvh_child[nodes] = tree.child
        model.bvh_nodeid[nodes] = tree.nodeid
        model.bvh_aabb[nodes] = tree.aabb
        for name, kind in self.layout_set.bodies.items():
            if kind.links:
                pose, body = layout.poses[name], model.body(name).id
                model.body_pos[body], model.body_quat[body] = pose.pos, pose.quat

    def check_room(self, episode: Episode) -> None:
        """Raises a `UserError` if the episode has more objects than the home has slots."""
        if len(episode.objects) > self.capacity:
            raise UserError(
                f"episode {episode.id}: objects: {len(episode.objects)} given, this home has "
                f"room for {self.capacity}"
            )

    def object_geom(self, slot: int, kind: ObjectKind) -> int:
        """Returns the geom that an object uses in a slot."""
        return int(self.slot_geom[slot, PRIMITIVES.index(kind.primitive)])

    def apply_object(self, model: mujoco.MjModel, slot: int, kind: ObjectKind) -> None:
        """Gives a slot the size and mass of an object, and sets all fields derived from them."""
        body, dof = self.slot_body[slot], self.slot_dof[slot]
        geom = self.object_geom(slot, kind)
        model.geom_margin[geom] = 0.0
        model.geom_size[geom] = kind.size
        model.geom_rbound[geom] = kind.bounding_radius
        model.geom_aabb[geom, 3:] = kind.half
        self._fit_tree(model, int(body), geom, kind)
        model.geom_rgba[geom, :3] = kind.rgb
        model.geom_rgba[geom, 3] = 1.0
        model.body_subtreemass[0] += kind.mass - model.body_mass[body]
        model.body_mass[body] = model.body_subtreemass[body] = kind.mass
        model.body_inertia[body] = kind.inertia
        model.body_gravcomp[body] = 0.0
        # As mj_setConst computes it at qpos0 for a free body: mean inverse mass and inertia.
        turn = float(np.mean(1.0 / kind.inertia))
        model.body_invweight0[body] = 1.0 / kind.mass, turn
        model.dof_invweight0[dof : dof + 3] = 1.0 / kind.mass
        model.dof_invweight0[dof + 3 : dof + 6] = turn
        # The engine takes a free body's inertia matrix from dof_M0, not from its mass.
        model.dof_M0[dof : dof + 3] = kind.mass
        model.dof_M0[dof + 3 : dof + 6] = kind.inertia
        model.dof_length[dof + 3 : dof + 6] = kind.bounding_radius

    def _fit_tree(self, model: mujoco.MjModel, body: int, geom: int, kind: ObjectKind) -> None:
        """Sets an object's half extents in the nodes of its body's tree that contain its geom."""
        first, count = int(model.body_bvhadr[body]), int(model.body_bvhnum[body])
        held: set[int] = set()
        for node in range(first + count - 1, first - 1, -1):  # children come after their parents
            children = {first + int(child) for child in model.bvh_child[node] if child >= 0}
            if model.bvh_nodeid[node] == geom or children & held:
                held.add(node)
                model.bvh_aabb[node, 3:] = kind.half

    def park(self, model: mujoco.MjModel, slot: int) -> np.ndarray:
        """Disables a slot and returns the pose (7,) at which its body must be placed.

        Parked objects are weightless, far from each other and from everything else.
        """
        model.body_gravcomp[self.slot_body[slot]] = 1.0
        return np.array([100.0 + 2.0 * slot, 100.0, PARK_Z, 1.0, 0.0, 0.0, 0.0])


@functools.cache
def load_home_model(layout_set: str = "replica_cad", capacity: int = 30) -> HomeModel:
    """Returns the model for a layout set and a number of slots, compiled once per process.

    Raises:
        UserError: `capacity` is not one of `CAPACITIES`, or the layout set is unknown.
    """
    if capacity not in CAPACITIES:
        nearest = min(CAPACITIES, key=lambda known: abs(known - capacity))
        raise UserError(
            f"slots: there is no home for {capacity} objects; nearest: {nearest} "
            f"(valid: {', '.join(map(str, CAPACITIES))})"
        )
    layouts = load_layout_set(layout_set)
    return _index(layouts, capacity, home_spec(layouts, capacity).compile())


def _furniture_boxes(layouts: LayoutSet) -> list[tuple[str, Box]]:
    """Returns the bodies' own boxes, which no joint moves, each with its body's name."""
    return [(name, box) for name, kind in layouts.bodies.items() for box in kind.boxes]


def _index(layouts: LayoutSet, capacity: int, model: mujoco.MjModel) -> HomeModel:
    slots = range(capacity)
    geom_slot = np.full(model.ngeom, -1, dtype=np.int32)
    slot_geom = np.array([[model.geom(f"slot_{s}/{p}").id for p in PRIMITIVES] for s in slots])
    geom_slot[slot_geom] = np.arange(capacity)[:, None]
    links = [layouts.link(key)[1] for key in JOINTS]
    geom_grasp = geom_slot.copy()
    for joint, link in enumerate(links):
        geom_grasp[model.geom_bodyid == model.body(link.name).id] = capacity + joint
    slot_dof = np.array([model.jnt_dofadr[model.joint(f"slot_{s}").id] for s in slots])
    for start in slot_dof:
        model.dof_damping[start + 3 : start + 6] = _OBJECT_ANGULAR_DAMPING
    boxes = _furniture_boxes(layouts)
    base_joints = [model.joint(n).id for n in ("base_x", "base_y", "base_yaw")]
    robot_root = model.body("base").id
    return HomeModel(
        layout_set=layouts,
        capacity=capacity,
        model=model,
        base_qpos=model.jnt_qposadr[base_joints],
        base_dof=model.jnt_dofadr[base_joints],
        arm_qpos=np.array([model.jnt_qposadr[model.joint(j.name).id] for j in ARM]),
        slot_body=np.array([model.body(f"slot_{s}").id for s in slots]),
        slot_geom=slot_geom,
        slot_qpos=np.array([model.jnt_qposadr[model.joint(f"slot_{s}").id] for s in slots]),
        slot_dof=slot_dof,
        slot_weld=np.array([model.equality(f"weld_{s}").id for s in slots]),
        joint_qpos=np.array([model.jnt_qposadr[model.joint(key).id] for key in JOINTS]),
        marker_body=np.array([model.body(link.name).id for link in links]),
        marker_local=np.array([link.marker for link in links]),
        marker_connect=np.array([model.equality(key).id for key in JOINTS]),
        cup_site=model.site("cup").id,
        cup_geom=model.geom("cup").id,
        cup_body=model.body("wrist_roll").id,
        head_camera=model.camera("head").id,
        robot_geom=model.body_rootid[model.geom_bodyid] == robot_root,
        floor_geom=model.geom("floor").id,
        geom_slot=geom_slot,
        geom_grasp=geom_grasp,
        furniture_geom=np.array([model.geom(f"{name}/{box.name}").id for name, box in boxes]),
    )


@functools.lru_cache(maxsize=256)
def _posed(layout_set: str, capacity: int, layout: str) -> tuple[np.ndarray, np.ndarray, Tree]:
    """Returns positions and quaternions of the furniture's geoms, and the tree of static geoms."""
    home = load_home_model(layout_set, capacity)
    model, poses = home.model, home.layout_set.layout(layout).poses
    boxes = [(poses[name], box) for name, box in _furniture_boxes(home.layout_set)]
    quat = np.array([pose.quat for pose, _ in boxes])
    pos = np.array([pose.pos + quat_matrix(pose.quat) @ box.pos for pose, box in boxes])
    centre, turn = model.geom_pos.copy(), model.geom_quat.copy()
    centre[home.furniture_geom], turn[home.furniture_geom] = pos, quat
    collide = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    collide[home.floor_geom] = False
    still = np.flatnonzero(collide & (model.geom_bodyid == 0))
    reach = np.einsum("gij,gj->gi", np.abs(quat_matrix(turn[still])), model.geom_size[still])
    tree = build(centre[still] - reach, centre[still] + reach, still, home.floor_geom)
    return pos, quat, tree
