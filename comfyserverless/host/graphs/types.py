"""Compare the types of outputs and inputs as packs do that check links themselves."""

from __future__ import annotations

from typing import Any

ANY = "*"


def validate_node_input(received_type: Any, input_type: Any, strict: bool = False) -> bool:
    """Tell whether an output fits an input: types share a name, or one is a wildcard.

    strict: all that the output may be must be taken. Type objects decide first, by their own `!=`.
    """
    if not received_type != input_type:  # noqa: SIM202  (packs override `!=` alone)
        return True
    if ANY in (received_type, input_type):
        return True
    if not isinstance(received_type, str) or not isinstance(input_type, str):
        return isinstance(received_type, list) and input_type == "COMBO"
    given, taken = ({name.strip() for name in names.split(",")} for names in (received_type, input_type))
    if ANY in given | taken:
        return True
    return given <= taken if strict else bool(given & taken)
