"""Task planning: PDDL domain and problems, search, plans, their execution and its trace."""

import tpsrl  # noqa: F401  (names the new module where an old one is imported)
