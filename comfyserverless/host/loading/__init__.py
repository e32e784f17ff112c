"""Find packs, import them one by one, and say what each brings."""
