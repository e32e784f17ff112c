"""ComfyUI's `comfy.cli_args`."""

import argparse

from comfyserverless.host.flags.arguments import LatentPreviewMethod, PerformanceFeature, arguments
from comfyserverless.host.missing import missing_names

args = arguments()
parser = argparse.ArgumentParser()

__all__ = ["LatentPreviewMethod", "PerformanceFeature", "args", "parser"]
__getattr__ = missing_names(__name__)
