"""Hold what travels as sound, film and solids: `comfy_api.latest.Types`, `Input` and `InputImpl`."""
