"""Planning for the arm: inverse kinematics by table, RRT-Connect, rest poses."""
