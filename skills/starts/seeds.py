"""Seeds of start states that are kept apart from each other."""

VALIDATION_SEED = 1000  # of those by which checkpoints are chosen; others are for reporting
