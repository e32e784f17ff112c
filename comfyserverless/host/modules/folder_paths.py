"""ComfyUI's `folder_paths`."""

import sys

from comfyserverless.host.folders.module import fill
from comfyserverless.host.missing import missing_names

__getattr__ = missing_names("folder_paths")
fill(sys.modules[__name__])
