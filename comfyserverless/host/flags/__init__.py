"""Answer `comfy.cli_args`."""
