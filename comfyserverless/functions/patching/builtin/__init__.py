"""The model patches that come with the server, by the names that handles carry."""
