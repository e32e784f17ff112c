"""ComfyUI's `comfy.options`: the server has read its arguments, whatever is asked here."""

from comfyserverless.host.missing import missing_names

args_parsing = True


def enable_args_parsing(enable: bool = True) -> None:
    """Do nothing: arguments are known."""


__getattr__ = missing_names(__name__)
