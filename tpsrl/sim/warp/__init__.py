"""The engine `warp`: many homes on one device with mujoco-warp."""
