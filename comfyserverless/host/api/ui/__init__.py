"""Save and show what nodes make: `comfy_api.latest.ui`."""
