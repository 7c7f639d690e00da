"""Standard PDDL: parsing of domains and plans with the position of every error, and writing."""
