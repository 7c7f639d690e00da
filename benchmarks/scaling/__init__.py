"""Training on many ranks: preemption rules, measured on this machine and simulated beyond it."""
