"""Run the command line with `python -m comfyserverless`."""

import sys

from comfyserverless.cli import main

sys.exit(main())
