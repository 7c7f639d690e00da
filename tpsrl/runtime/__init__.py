"""Processes and files: locks, worker processes, compiled code, progress, users' own modules.

This package is independent of robots and learning.
"""
