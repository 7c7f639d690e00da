"""Demonstrations: what a skill's teacher would do in the states that somebody got into."""
