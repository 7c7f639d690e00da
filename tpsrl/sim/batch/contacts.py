"""`tpsrl.sim.contacts` for all homes at once, from one list of contacts."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Contacts:
    """The contacts of all homes in one list, in any order."""

    live: torch.Tensor  # (k,) bool, whether the entry is a contact
    home: torch.Tensor  # (k,) index of the contact's home
    geom: torch.Tensor  # (k, 2)
    distance: torch.Tensor  # (k,) metres, negative inside
    dim: torch.Tensor  # (k,) contact dimensions
    address: torch.Tensor  # (k, edges) constraint rows, -1 for contacts inside their gap


def largest_forces(
    contacts: Contacts,
    rows: torch.Tensor,
    robot: torch.Tensor,
    floor: int,
    held: torch.Tensor,
) -> torch.Tensor:
    """Returns the largest normal force (n,) of a single contact in each home, newton.

    The same contacts count as in `tpsrl.sim.contacts.largest_force`.

    Args:
        contacts: of all homes.
        rows: (n, m) forces of the constraint rows of each home.
        robot: (ngeom,) bool, whether a geom is the robot's.
        floor: the floor's geom.
        held: (n,) geom of the held object, -1 for none.
    """
    # Entries that are not contacts have arbitrary values.
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
    """Returns the mark (n,) of the geom that touches the cup most deeply in each home, or -1.

    Of two equally deep geoms the one with the lower mark counts.

    Args:
        contacts: of all homes.
        num_homes: n.
        cup: the cup's geom.
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
