"""Keep what was used: by day for long, by prompt as long as that is in history. SQL for any database."""
