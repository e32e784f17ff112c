"""Read what packs and installed packages bring for the page: templates, translations, blueprints, help.

Plain files only: nothing here imports or runs a pack.
"""
