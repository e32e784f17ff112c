"""Speak ComfyUI's HTTP and websocket.

Never here: scheduling decisions. May import control and below.
"""
