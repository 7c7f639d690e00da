"""Reset arm: back to the resting posture, as HAB's fixed plan has it after every skill."""

from skills.scripted.routine import Routine, Run, at_rest, resting


class ScriptedResetArm(Routine):
    """Moves the arm near its resting point on a collision-free path, unless it is well there.

    The arm is all that it may move: where the robot could not drive off with the arm at rest, the
    arm is raised instead.
    """

    def run(self) -> Run:
        """See `Routine.run`."""
        scene = self.look()
        if at_rest(scene, self.world.ee_pos[0]):
            return True
        checker = scene.checker(scene.base)
        for posture in resting(scene, checker, only_drivable=True):
            path = self.path_to(posture, checker)
            if path is not None:
                yield from self.follow(path)
                return True
        yield from self.rise()
        return True
