"""A pack in the manner of popular ones: samplers, detailers, guiders and patches over ComfyUI's modules."""

from .guiding import NODE_CLASS_MAPPINGS as GUIDING  # noqa: TID252 - as packs do it
from .library import NODE_CLASS_MAPPINGS as LIBRARY  # noqa: TID252
from .sampling import NODE_CLASS_MAPPINGS as SAMPLING  # noqa: TID252

NODE_CLASS_MAPPINGS = {**SAMPLING, **GUIDING, **LIBRARY}
