"""The skills of a home robot: definitions, environments, start states, scripted versions.

Each skill, or family of skills, has its own folder and registers itself. `core` holds the parts of
a skill's definition, `envs` the environments, `starts` and `scripted` the code that start states
and scripted versions share, and `policies` the learned policies, baselines and user classes.
"""

import tpsrl  # noqa: F401  (refuses imports under a module's old name and gives the new one)
