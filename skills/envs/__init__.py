"""Skills as environments: batches of homes, gymnasium, training, sensors."""
