"""Define what packs import as `comfy_api.latest.io`: types, inputs, schemas and node classes."""
