"""ComfyUI's `utils.extra_config`."""

from comfyserverless.host.folders.extra import apply_extra_paths
from comfyserverless.host.folders.module import current
from comfyserverless.host.missing import missing_names


def load_extra_path_config(yaml_path: str) -> None:
    """Add the paths of an extra_model_paths file."""
    apply_extra_paths(current().table, yaml_path)


__getattr__ = missing_names(__name__)
