"""Motion planning for a wheeled base with an arm and a suction cup; knows no skill.

`scene` holds what a planner knows of one environment, `tracking` follows a planned path. Plans of
the base are in `base`, those of the arm in `arm`, grasps and placements in `suction`, plans of base
and arm together in `body`, and those for doors and drawers in `doors`.
"""
