"""Action layout of all skills: (n, 11) in [-1, 1], all parts applied in one control step."""

ARM = slice(0, 7)  # joint target deltas, +-1 is +-0.0125 rad
GRIP = 7  # >= 0 grasps on contact, < 0 releases
BASE = slice(8, 10)  # linear (forward) and angular velocity, +-1 is +-2.5 m/s and +-2.5 rad/s
STOP = 10  # > 0 ends the skill
SIZE = 11

ARM_DELTA_RAD = 0.0125
ARM_LEASH_RAD = 0.1  # most by which a target leads its joint, for instance a blocked one
# HAB integrates 10 m/s and 10 rad/s over one 1/120 s physics step per control step of 1/30 s
# (habitat-lab 0.3.3), which is 0.083 m and 4.8 degrees a step.
BASE_LINEAR_MPS = 2.5
BASE_ANGULAR_RPS = 2.5
CONTROL_HZ = 30.0
STEP_M, STEP_RAD = BASE_LINEAR_MPS / CONTROL_HZ, BASE_ANGULAR_RPS / CONTROL_HZ  # maxima
