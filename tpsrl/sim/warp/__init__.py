"""The engine `warp`: many homes on one device by mujoco-warp."""
