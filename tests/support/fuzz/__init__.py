"""Throw random requests, prompts and websocket messages at a real server, and judge what comes back."""
