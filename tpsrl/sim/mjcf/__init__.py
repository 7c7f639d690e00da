"""Builds the MuJoCo model of a home from what `tpsrl.world` says of it."""
