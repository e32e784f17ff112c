"""Keep what must survive the server: accepted prompts, their outcome, the names of their files, usage.

One small interface (`base.Backend`), implemented on SQLite and, below `postgres`, on PostgreSQL.
Never here: what runs, HTTP, ComfyUI's shapes.
"""
