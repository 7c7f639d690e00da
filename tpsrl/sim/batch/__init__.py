"""Many homes that step together, with states and actions as tensors of one device."""
