"""`tpsrl.sim.contacts` over all homes at once: what one list of contacts says of each of them."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Contacts:
    """The contacts of all homes in one list, in any order."""

    live: torch.Tensor  # (k,) bool, whether the entry is a contact at all
    home: torch.Tensor  # (k,) the home it is in
    geom: torch.Tensor  # (k, 2)
    distance: torch.Tensor  # (k,) metres, negative inside
    dim: torch.Tensor  # (k,) contact dimensions
    address: torch.Tensor  # (k, edges) its rows of constraints, -1 where it is inside its gap


def largest_forces(
    contacts: Contacts,
    rows: torch.Tensor,
    robot: torch.Tensor,
    floor: int,
    held: torch.Tensor,
) -> torch.Tensor:
    """The largest normal force (n,) of one contact in each home, newton.

    What counts is as in `tpsrl.sim.contacts.largest_force`.

    Args:
        contacts: of all homes.
        rows: (n, m) forces of the constraint rows of each home.
        robot: (ngeom,) bool, whether a geom is the robot's.
        floor: the floor's geom.
        held: (n,) geom of the held object, -1 for none.
    """
    # Entries that are no contacts may hold anything.
    home = torch.where(contacts.live, contacts.home, 0).long()
    one, other = torch.where(contacts.live[:, None], contacts.geom, 0).long().unbind(1)
    of_robot, by_robot, own = robot[one], robot[other], held[home]
    beside = (of_robot & ((other == floor) | (other == own))) | (
        by_robot & ((one == floor) | (one == own))
    )
    counts = contacts.live & (contacts.address[:, 0] >= 0) & ~(of_robot & by_robot) & ~beside
    edges = torch.where(contacts.dim == 1, 1, 2 * (contacts.dim - 1))
    column = torch.arange(contacts.address.shape[1], device=rows.device)
    force = rows[home[:, None], contacts.address.clamp(0, rows.shape[1] - 1).long()]
    force = torch.where(column < edges[:, None], force, 0.0).sum(1)
    largest = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
    return largest.scatter_reduce(0, home, torch.where(counts, force, 0.0), "amax")


def touched_most(contacts: Contacts, num_homes: int, cup: int, mark: torch.Tensor) -> torch.Tensor:
    """The mark (n,) of what touches the cup most deeply in each home, -1 for nothing.

    Of two that are equally deep the lower mark counts.

    Args:
        contacts: of all homes.
        num_homes: n.
        cup: its geom.
        mark: (ngeom,) at least 0 for geoms that count.
    """
    home = torch.where(contacts.live, contacts.home, 0).long()
    one, other = torch.where(contacts.live[:, None], contacts.geom, 0).long().unbind(1)
    found = mark[torch.where(one == cup, other, one)].long()
    counts = contacts.live & ((one == cup) | (other == cup)) & (found >= 0)
    none = torch.iinfo(torch.int64).max
    depth = torch.where(counts, contacts.distance, torch.inf)
    deepest = torch.full((num_homes,), torch.inf, dtype=depth.dtype, device=depth.device)
    deepest = deepest.scatter_reduce(0, home, depth, "amin")
    found = torch.where(counts & (depth == deepest[home]), found, none)
    best = torch.full((num_homes,), none, device=depth.device).scatter_reduce(
        0, home, found, "amin"
    )
    return torch.where(best == none, -1, best)
