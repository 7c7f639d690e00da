"""Where episodes of skills start: what the start states of all skills are drawn with."""
