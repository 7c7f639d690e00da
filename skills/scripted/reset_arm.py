"""Reset arm: back to the resting posture, as HAB's fixed plan has it after every skill."""

from skills.scripted.routine import Blocked, Routine, Steps, at_rest, rest_postures


class ScriptedResetArm(Routine):
    """Moves the arm near its resting point on a collision-free path, unless it is well there.

    The arm is all that it may move: where the robot could not drive off with the arm at rest, the
    arm is raised instead.
    """

    def run(self) -> Steps:
        """See `Routine.run`."""
        if at_rest(self.look(), self.world.ee_pos[0]):
            return
        for _ in range(3):
            try:
                scene = self.look()
                checker = scene.checker(scene.base)
                for posture in rest_postures(scene, checker, only_drivable=True):
                    path = self.path_to(posture, checker)
                    if path is not None:
                        yield from self.follow(path)
                        return
                yield from self.rise()
                return
            except Blocked:
                self.note("blocked_arm")
                self.resync()
