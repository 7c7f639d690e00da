"""Start states of skills: distributions, banks, mixtures, recorded states."""
