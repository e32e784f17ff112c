"""End what belongs to credentials and accounts that end while the server runs."""
