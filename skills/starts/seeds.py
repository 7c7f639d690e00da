"""Seeds of start states for separate purposes."""

VALIDATION_SEED = 1000  # for choosing checkpoints; reports use other seeds
