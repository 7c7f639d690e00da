"""The viewer: episodes recorded step by step, and shown in a browser."""
