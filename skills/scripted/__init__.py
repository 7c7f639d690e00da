"""The classical sense-plan-act skills (HAB's TP-SPA): baseline, demonstrators, no training.

They plan with the state of the world and a model of the home, and act through the same action
interface, physics and limits as a learned policy.
"""

from collections.abc import Callable

from skills.core.interface import SkillPolicy
from tpsrl.errors import unknown


def _makers() -> dict[str, Callable[[], SkillPolicy]]:
    from skills.articulated.scripted import ScriptedClose, ScriptedOpen
    from skills.navigate.scripted import ScriptedNavigate
    from skills.pick.scripted import ScriptedPick
    from skills.place.scripted import ScriptedPlace
    from skills.scripted.reset_arm import ScriptedResetArm

    return {
        "navigate": ScriptedNavigate,
        "pick": ScriptedPick,
        "place": ScriptedPlace,
        "open_fridge": ScriptedOpen,
        "close_fridge": ScriptedClose,
        "open_drawer": ScriptedOpen,
        "close_drawer": ScriptedClose,
        "reset_arm": ScriptedResetArm,
    }


def make(name: str) -> SkillPolicy:
    """The scripted policy of a skill.

    Raises:
        UserError: there is none of that name; names the nearest.
    """
    makers = _makers()
    if name not in makers:
        raise unknown("skill", name, makers)
    return makers[name]()
