"""Let operators see the server from outside: what requests do, and lines that machines read."""
