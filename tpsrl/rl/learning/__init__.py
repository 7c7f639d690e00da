"""Learning from rollouts: returns, sequences, PPO, entropy coefficient, auxiliary losses."""
