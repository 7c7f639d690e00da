"""Which geoms of a home may touch: the bits of MuJoCo's contype and conaffinity."""

# Held against each other by MuJoCo as (contype_a & conaffinity_b) or the reverse.
STATIC, ROBOT, OBJECT, SELF, FLOOR = 1, 2, 4, 8, 16
