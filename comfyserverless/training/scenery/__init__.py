"""Scenes, their pictures, captions, token rows and hand-laid latents. Never here: networks, files."""
