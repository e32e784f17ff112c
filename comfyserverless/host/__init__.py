"""Run the Python nodes of custom packs in a process of their own, with the modules that packs import."""
