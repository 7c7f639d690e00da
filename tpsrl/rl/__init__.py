"""Reinforcement learning: policies, PPO, rollouts, collectors, for any environments (`VecEnv`)."""
