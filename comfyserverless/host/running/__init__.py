"""Run the calls of pack nodes: instances, arguments, answers, and the live bridge."""
