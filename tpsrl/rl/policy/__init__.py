"""Policy network: encoders, memory, Gaussian actions."""
