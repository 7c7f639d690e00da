"""Place: definition, start states, scripted version."""
