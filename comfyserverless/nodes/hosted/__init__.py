"""Declare what only the node host may run: lowerings for what packs call, which no prompt can name."""
