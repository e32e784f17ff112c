"""ComfyUI's `utils.install_util`."""

from pathlib import Path

from comfyserverless.host.missing import missing_names
from comfyserverless.host.settings import settings

requirements_path = Path(settings().base) / "requirements.txt"


def get_missing_requirements_message() -> str:
    """Return how to install what the server needs."""
    return "Install what is missing into the Python of this server: pip install comfyserverless"


__getattr__ = missing_names(__name__)
