"""Answer ComfyUI's HTTP routes; one module per family, each with `ROUTES` that `server.app` registers.

Never here: middlewares, socket fan-out. May import the rest of server, control and below.
"""
