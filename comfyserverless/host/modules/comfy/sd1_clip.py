"""ComfyUI's `comfy.sd1_clip`: how prompts are weighted; its other names can be imported."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.models.text.emphasis import hide as escape_important
from comfyserverless.models.text.emphasis import reveal as unescape_important
from comfyserverless.models.text.emphasis import top_level_parts, weigh


def parse_parentheses(string: str) -> list[str]:
    """Cut a text into its outermost brackets and what is between them."""
    return list(top_level_parts(string))


def token_weights(string: str, current_weight: float) -> list[tuple[str, float]]:
    """Return the (text, weight) runs of a text whose escaped brackets are hidden."""
    return list(weigh(string, current_weight))


__all__ = ["escape_important", "parse_parentheses", "token_weights", "unescape_important"]
__getattr__ = refused(__name__)
