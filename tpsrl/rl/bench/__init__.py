"""How fast collectors are, side by side; environments made for that."""
