"""MuJoCo models of homes, built from the definitions in `tpsrl.world`."""
