"""Contact masks of a home's geoms: the bits of MuJoCo's contype and conaffinity."""

# Geoms a and b may touch if (contype_a & conaffinity_b) or (contype_b & conaffinity_a).
STATIC, ROBOT, OBJECT, SELF, FLOOR = 1, 2, 4, 8, 16
