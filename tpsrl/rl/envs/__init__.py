"""Environments as learners see them, in this process or in workers."""
