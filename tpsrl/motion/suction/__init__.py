"""Where the cup can touch an object, how to grasp it, and how to put it down."""
