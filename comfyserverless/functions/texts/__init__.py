"""Functions on texts that may take long: they run on the CPU lane of a worker."""
