"""YAML presets, package data: `configs/GROUP/NAME.yaml`."""
