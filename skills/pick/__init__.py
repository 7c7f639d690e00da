"""Pick: definition, start states, scripted version."""
