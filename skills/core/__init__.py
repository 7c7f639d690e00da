"""What every skill is made of: its interface, its memory, conditions and the step that judges."""
