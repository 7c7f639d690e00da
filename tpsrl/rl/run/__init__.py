"""The run around learning: trainer, validation, checkpoints, logs."""
