"""Options of the plans of one scenario."""

import dataclasses

from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options by which protocols plan one scenario differently.

    `nav_after_open_drawer` makes the robot navigate to the object after opening its drawer, as in
    the VER paper; habitat-lab's own plan picks right away. `close_after` adds to the goal that
    every drawer and fridge that had to be opened is closed again, as M3 and MS-HAB require in Set
    Table; the receptacle of an object is closed before the next object is fetched.
    """

    nav_after_open_drawer: bool = config.option(
        True, "navigate to the object once its drawer is open (VER paper)"
    )
    close_after: bool = config.option(
        False, "require opened drawers and fridge to be closed again (M3, MS-HAB)"
    )
