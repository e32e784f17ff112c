"""A pack in the manner of popular ones: samplers, detailers, guiders and patches over ComfyUI's modules."""

from .changing import NODE_CLASS_MAPPINGS as CHANGING
from .guiding import NODE_CLASS_MAPPINGS as GUIDING
from .library import NODE_CLASS_MAPPINGS as LIBRARY
from .sampling import NODE_CLASS_MAPPINGS as SAMPLING

NODE_CLASS_MAPPINGS = {**SAMPLING, **GUIDING, **LIBRARY, **CHANGING}
