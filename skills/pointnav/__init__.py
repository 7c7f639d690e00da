"""PointNav: the task, where its episodes start, and agents that need no learning."""
