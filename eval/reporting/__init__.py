"""Shows reports: pages, tables on the terminal."""
