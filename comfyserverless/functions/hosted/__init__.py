"""Hold the functions behind the modules that packs import."""
