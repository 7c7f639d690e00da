"""The viewer: records episodes step by step and shows them in a browser."""
