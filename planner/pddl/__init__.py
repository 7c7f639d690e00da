"""PDDL by its standard: reading domains and plans with the place of every mistake, and writing."""
