"""Task planning: PDDL domain and problems, search, plans, their execution and its trace."""
