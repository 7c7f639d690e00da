"""Suction and force rules of a batch of homes, tested against those of single C-engine homes."""

import dataclasses

import numpy as np
import pytest
import torch
from homes import (
    DRAWER,
    HOLD,
    IDLE,
    UP,
    before_handle,
    box_in_front,
    driving,
    move_arm,
    pick_up,
    posture_above,
    pull_drawer,
    reach_face,
    repeat,
    take_drawer,
)

import tpsrl.sim
from tpsrl.sim.batch.contacts import Contacts, largest_forces, touched_most
from tpsrl.sim.batch.holding import ContactForces, CupHolds, HoldRules, RuleArrays
from tpsrl.sim.contacts import largest_force, touched
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world.state import JOINTS

HOMES, GEOMS, FLOOR, CUP = 5, 12, 7, 3
ROBOT = np.arange(GEOMS) < 5


def random_contacts(rng: np.random.Generator) -> tuple[Contacts, np.ndarray]:
    """Returns a list of contacts in random order, some of them unused, and the homes' forces."""
    count, rows = 60, 200
    dim = rng.choice([1, 3, 4, 6], count)
    address = np.full((count, 10), -1)
    for i in range(count):
        if rng.random() < 0.8:
            edges = 1 if dim[i] == 1 else 2 * (dim[i] - 1)
            address[i, :edges] = rng.integers(rows - 10) + np.arange(edges)
    live = rng.random(count) < 0.8
    home = np.where(live, rng.integers(HOMES, size=count), 10**6)
    geom = rng.integers(GEOMS, size=(count, 2))
    distance = rng.integers(-3, 3, count) / 100  # some are equally deep
    fields = (live, home, geom, distance, dim, address)
    contacts = Contacts(*(torch.from_numpy(values) for values in fields))
    return contacts, rng.uniform(0, 100, (HOMES, rows))


@pytest.mark.parametrize("seed", range(30))
def test_batched_contacts_give_the_force_and_touched_geom_of_each_home_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    contacts, rows = random_contacts(rng)
    held = rng.choice([-1, 5, 8], HOMES)
    mark = np.where(rng.random(GEOMS) < 0.6, rng.integers(4, size=GEOMS), -1)
    forces = largest_forces(
        contacts,
        torch.from_numpy(rows),
        torch.from_numpy(ROBOT),
        FLOOR,
        torch.from_numpy(held),
    )
    found = touched_most(contacts, HOMES, CUP, torch.from_numpy(mark))
    for home in range(HOMES):
        own = (contacts.live & (contacts.home == home)).numpy()
        geom, dim, distance = (
            values.numpy()[own] for values in (contacts.geom, contacts.dim, contacts.distance)
        )
        address = contacts.address.numpy()[own, 0]
        alone = largest_force(geom, dim, address, rows[home], ROBOT, FLOOR, held[home])
        assert float(forces[home]) == pytest.approx(alone)
        # If several contacts are equally deep, a single home takes the first, a batch the lowest.
        order = np.argsort([max(mark[a], mark[b]) for a, b in geom], kind="stable")
        assert int(found[home]) == touched(geom[order], distance[order], CUP, mark)


def test_rises_of_force_are_summed_as_in_a_single_home() -> None:
    rng = np.random.default_rng(0)
    homes = [tpsrl.sim.make(slots=12).homes[0] for _ in range(4)]  # type: ignore[attr-defined]
    zero = torch.zeros(len(homes), dtype=torch.float64)
    forces = ContactForces(zero, zero, zero)
    for _ in range(200):
        newton = rng.uniform(0, 80, len(homes))
        forces.count(torch.from_numpy(newton))
        for home, force in zip(homes, newton, strict=True):
            home._count_force(float(force))
    assert forces.total.tolist() == pytest.approx([home.force_total for home in homes])
    assert forces.last.tolist() == [home.force for home in homes]


# -- holding ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class Moment:
    """State on which the suction rules of a home depend, before or after a step."""

    holds: tuple[int, int, int, bool]
    arrays: dict[str, np.ndarray]
    touched: int = -1
    longest: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(12))


def moment(home: MujocoHome) -> Moment:
    data, model, known = home.data, home.model, home._home
    arrays = {
        "pos": data.xpos,
        "quat": data.xquat,
        "mat": data.xmat.reshape(-1, 3, 3),
        "tip": home.cup_pos,
        "eq_data": model.eq_data,
        "eq_active": data.eq_active.astype(bool),
        "cup_margin": model.geom_margin[known.cup_geom],
    }
    found = touched(data.contact.geom, data.contact.dist, known.cup_geom, known.geom_grasp)
    longest = np.zeros(known.capacity)
    longest[: home.num_objects] = [
        2.0 * max(home._kind(slot).half) for slot in range(home.num_objects)
    ]
    holds = (home.held, home.held_joint, home._leaving, home.violation)
    return Moment(holds, {n: np.copy(v) for n, v in arrays.items()}, found, longest)


def grasp_lift_and_drop(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [box_in_front()])
    pick_up(simulator)
    repeat(simulator, IDLE, 25)
    state = simulator.state([0])
    move_arm(simulator, posture_above(state.base[0], state.ee_pos[0] + 0.1 * UP))
    repeat(simulator, HOLD, 2)


def lose_what_is_stuck(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [box_in_front()])
    pick_up(simulator)
    home = simulator.homes[0]
    home.data.xfrc_applied[home._home.slot_body[0], 2] = -20_000.0
    repeat(simulator, HOLD, 2)
    home.data.xfrc_applied[:] = 0.0
    repeat(simulator, HOLD, 2)


def pull_leave_and_take_again(simulator: MujocoSimulator) -> None:
    take_drawer(simulator)
    pull_drawer(simulator)
    repeat(simulator, IDLE, 1)
    repeat(simulator, HOLD, 3)
    repeat(simulator, driving(-0.3), 12)
    repeat(simulator, HOLD, 3)


def touch_a_drawer_far_from_its_handle(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [before_handle(DRAWER, 0.85, across=0.17)])
    reach_face(simulator, DRAWER, gap=-0.01, grip=1.0, across=0.17)


def test_holds_begin_and_end_as_in_a_single_home(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = MujocoHome._hold
    before: list[Moment] = []
    after: list[Moment] = []
    grips: list[bool] = []

    def watched(home: MujocoHome, grip: bool) -> None:
        before.append(moment(home))
        grips.append(grip)
        rule(home, grip)
        after.append(moment(home))

    monkeypatch.setattr(MujocoHome, "_hold", watched)
    simulator = tpsrl.sim.make(slots=12)
    assert isinstance(simulator, MujocoSimulator)
    for run in (
        grasp_lift_and_drop,
        lose_what_is_stuck,
        pull_leave_and_take_again,
        touch_a_drawer_far_from_its_handle,
    ):
        run(simulator)

    def stacked(moments: list[Moment]) -> dict[str, torch.Tensor]:
        return {
            name: torch.from_numpy(np.stack([one.arrays[name] for one in moments])).clone()
            for name in moments[0].arrays
        }

    initial = np.array([one.holds for one in before])
    holds = CupHolds(*(torch.from_numpy(initial[:, k].copy()) for k in range(3)), torch.zeros(1))
    bodies = RuleArrays(**stacked(before))
    HoldRules(simulator.home, torch.device("cpu")).after_step(
        holds,
        bodies,
        torch.tensor([one.touched for one in before]),
        torch.tensor(grips),
        torch.from_numpy(np.stack([one.longest for one in before])),
    )
    wanted = np.array([one.holds for one in after])
    found = (holds.held, holds.held_joint, holds.leaving, holds.violation)
    np.testing.assert_array_equal(np.stack([values.numpy() for values in found], 1), wanted)
    # The recorded moments contain every kind of change.
    changed = (initial != wanted).any(1)
    assert changed.sum() >= 8 and wanted[:, 3].any()
    assert {0} < set(wanted[:, 0] + 1) and JOINTS.index(DRAWER) in wanted[:, 1]
    for name, values in stacked(after).items():
        np.testing.assert_allclose(getattr(bodies, name), values, atol=1e-9, err_msg=name)


def test_release_ends_the_holds_of_the_selected_homes_only() -> None:
    simulator = tpsrl.sim.make(slots=12)
    assert isinstance(simulator, MujocoSimulator)
    home, rules = simulator.home, HoldRules(simulator.home, torch.device("cpu"))
    active = torch.zeros(3, home.model.neq, dtype=torch.bool)
    active[0, home.slot_weld[2]] = active[1, home.slot_weld[1]] = True
    active[2, home.marker_connect[4]] = True
    holds = CupHolds(
        torch.tensor([2, 1, -1]),
        torch.tensor([-1, -1, 4]),
        torch.tensor([-1, -1, -1]),
        torch.zeros(3, dtype=torch.bool),
    )
    nothing = torch.zeros(3, 1)
    bodies = RuleArrays(nothing, nothing, nothing, nothing, nothing, active, nothing)
    rules.release(holds, bodies, torch.tensor([True, False, True]))
    assert active.nonzero().tolist() == [[1, int(home.slot_weld[1])]]
    assert holds.held.tolist() == [-1, 1, -1] and holds.held_joint.tolist() == [-1, -1, -1]
    assert holds.leaving.tolist() == [len(JOINTS) + 2, -1, 4]
