"""Runs episodes over processes: scenarios, skills by themselves, several at once, films."""
