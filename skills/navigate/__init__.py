"""Navigate: definition, start states, scripted version."""
