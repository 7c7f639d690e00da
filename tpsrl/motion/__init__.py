"""Motion planning for a wheeled base with an arm and a suction cup, independent of skills.

`scene` has the planner's input from one environment, `tracking` follows a planned path. Planning
for the base is in `base`, for the arm in `arm`, for grasps and placements in `suction`, for base
and arm together in `body`, and for doors and drawers in `doors`.
"""
