"""What may differ between the plans of one scenario."""

import dataclasses

from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class PlanOptions:
    """How protocols plan one scenario differently.

    `nav_after_open_drawer` has the robot navigate to the object once its drawer is open, as the VER
    paper does; habitat-lab's own plan picks right away. `close_after` makes the goal include that
    every drawer and fridge which had to be opened is closed again, as M3 and MS-HAB do in Set
    Table; an object's receptacle is closed before the next object is fetched.
    """

    nav_after_open_drawer: bool = config.option(
        True, "navigate to the object once its drawer is open (VER paper)"
    )
    close_after: bool = config.option(
        False, "require opened drawers and fridge to be closed again (M3, MS-HAB)"
    )
