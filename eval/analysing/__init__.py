"""Analysis of episodes: results, success rates with intervals, first causes."""
