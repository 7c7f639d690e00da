"""The skills of a home robot: definitions, environments, start states, scripted versions.

A folder for each skill, or family of skills, which registers itself; `core` is what every skill is
made of, `envs` makes environments of them, `starts` and `scripted` are what their start states and
scripted versions share, `policies` acts for them otherwise.
"""

import tpsrl  # noqa: F401  (names the new module where an old one is imported)
