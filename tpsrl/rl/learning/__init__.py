"""What is learned from a rollout: returns, sequences, PPO, the entropy coefficient."""
