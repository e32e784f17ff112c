"""Measure whether the two branches of guidance should be calls apart: `gain` compares, `parts` bounds."""
