"""Change and combine encoded prompts on the CPU lane."""
