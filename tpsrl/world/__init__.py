"""The home: layouts, the Fetch, objects, episodes. Knows no engine and no skill."""
