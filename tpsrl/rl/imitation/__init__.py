"""Learning from what an expert would have done: demonstrations, and behaviour cloning."""
