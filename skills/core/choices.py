"""The choices of sensors (`skills.core.sensors`); imports nothing, so that help comes at once."""

CHOICES = ("habitat", "fetch", "full", "teacher")
