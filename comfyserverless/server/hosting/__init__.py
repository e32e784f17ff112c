"""Pass on to node packs what is theirs: their routes, web folders, messages and prompt handlers."""
