"""Scripted version of Monolithic: Navigate, Pick, Navigate and Place in sequence."""

from collections.abc import Sequence

from skills.core.interface import SkillGoal
from skills.navigate import SPEC as NAVIGATE
from skills.pick import SPEC as PICK
from skills.place import SPEC as PLACE
from skills.policies.in_turn import InTurn, Part
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class ScriptedMonolithic(InTurn):
    """Brings an object to its goal; neither may be inside a closed fridge or drawer."""

    def parts(self, episode: Episode, goal: SkillGoal, world: WorldState) -> Sequence[Part]:
        """See `InTurn.parts`."""

        def there(now: WorldState) -> SkillGoal:
            x, y, z = (float(value) for value in now.object_pos[0, goal.object])
            return SkillGoal(goal.object, (x, y, z))

        def held(now: WorldState) -> bool:
            return bool(now.held[0] == goal.object)

        return [
            Part(NAVIGATE, NAVIGATE.make_scripted(), there),
            Part(PICK, PICK.make_scripted(), lambda now: SkillGoal(goal.object), held),
            Part(
                NAVIGATE, NAVIGATE.make_scripted(), lambda now: SkillGoal(-1, goal.position), held
            ),
            Part(PLACE, PLACE.make_scripted(), lambda now: goal),
        ]
