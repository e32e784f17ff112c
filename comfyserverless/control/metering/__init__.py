"""Know what was used: every stay of an invocation in a lane is told once, and added up."""
