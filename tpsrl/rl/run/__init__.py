"""Training runs: trainer, validation, checkpoints and logs."""
