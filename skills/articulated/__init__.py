"""Open and close the fridge and the drawers: definitions, start states, scripted versions."""
