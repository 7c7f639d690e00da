"""Demonstrations: states of recorded episodes, labelled with the demonstrator's actions."""
