"""The machine: files, locks, worker processes, compiled code, progress, users' own modules.

Nothing in this package knows about robots or learning.
"""
