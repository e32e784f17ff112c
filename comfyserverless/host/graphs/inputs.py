"""Look up what a class declares of one input."""

from __future__ import annotations

from typing import Any

_NONE = (None, None, None)


def get_input_info(class_def: Any, input_name: str, valid_inputs: Any = None) -> tuple[Any, Any, Any]:
    """Return (type, section, options) of an input of a class; three times None if it has no such input."""
    declared = class_def.INPUT_TYPES() if valid_inputs is None else valid_inputs
    for section in ("required", "optional", "hidden"):
        if section in declared and input_name in declared[section]:
            spec = declared[section][input_name]
            if isinstance(spec, str):
                return spec, section, {}
            return spec[0], section, spec[1] if len(spec) > 1 else {}
    return _NONE
