"""Demonstrations: what a skill's demonstrator would do in the states that somebody got into."""
