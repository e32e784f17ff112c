"""Run workflows from the command line, on a server that runs or on one started for it.

A client as any other: it knows a server's HTTP and websocket only. Never here: the server's own rooms, torch.
"""
