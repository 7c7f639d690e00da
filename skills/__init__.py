"""One file a skill: what it may do, when it has succeeded, when it has failed."""
