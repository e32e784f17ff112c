"""Everything that proves, nothing that ships."""
