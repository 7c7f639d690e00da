"""Training on many ranks: rules of preemption, measured on this machine and simulated beyond it."""
