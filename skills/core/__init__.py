"""Parts of a skill's definition: interface, memory, conditions, sensors, and the task's step."""
