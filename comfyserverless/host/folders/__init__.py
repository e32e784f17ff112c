"""Answer `folder_paths`: where models and files are, for whoever runs now."""
