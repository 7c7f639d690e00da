"""Presentation of reports: HTML pages and tables in the terminal."""
