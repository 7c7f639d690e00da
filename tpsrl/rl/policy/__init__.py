"""The network: encoders, memory, Gaussians."""
