"""What acts for skills besides scripted versions: learned networks, and know-nothing agents."""
