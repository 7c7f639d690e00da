"""Reset arm: back to the resting posture, as HAB's fixed plan has it after every skill."""

from skills.scripted.routine import Blocked, Routine, Steps


class ScriptedResetArm(Routine):
    """Moves the arm to rest on a collision-free path."""

    def run(self) -> Steps:
        """See `Routine.run`."""
        for _ in range(3):
            try:
                yield from self.to_rest()
                yield from self.settle()
                return
            except Blocked:
                self.note("blocked_arm")
                self.resync()
