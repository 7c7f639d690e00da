"""Many homes that step together, seen and told as tensors of one device."""
