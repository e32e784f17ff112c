"""Draw which inputs a node has, where that depends on what is submitted, and what may go into wildcards."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from comfyserverless.core.dynamic_inputs import AUTOGROW, DYNAMIC_COMBO
from comfyserverless.graph.compatibility import ANY_TYPE, MATCH_TYPE
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration

PLAIN = ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", "COLOR", DYNAMIC_COMBO)
PRIMITIVES: Mapping[str, str] = {
    "INT": "PrimitiveInt",
    "FLOAT": "PrimitiveFloat",
    "STRING": "PrimitiveStringMultiline",
    "BOOLEAN": "PrimitiveBoolean",
}
"""The class that holds a plain value, by type."""

LOOPS = frozenset({"StartLoop", "EndLoop", "LoopRun", "LoopIteration", "LoopResult"})
"""Classes that expand to other nodes, and make sense only together."""

#: What goes into inputs of any type.
_ANYTHING = ("IMAGE", "IMAGE", "MASK", "LATENT", *PRIMITIVES)
#: What the page writes for widgets of its own.
_OWN_WIDGETS: Mapping[str, Sequence[Any]] = {
    "COLOR": ("#0a9299", "#0a929933", "red", ""),
    "IMAGECOMPARE": ({"__value__": ["", ""]},),
    "BOUNDING_BOX": ({"x": 3, "y": 4, "width": 20, "height": 9}, {"x": -5, "y": 999, "width": 0}, {}),
}


def drawn_inputs(rng: random.Random, declared: NodeDeclaration) -> tuple[Sequence[InputSpec], dict[str, Any]]:
    """Return the inputs of a node for one choice of what is submitted, and the values that make this choice."""
    if declared.dynamic_inputs is None:
        return declared.inputs, {}
    submitted: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for spec in declared.inputs:
        if spec.type == DYNAMIC_COMBO:
            chosen[spec.name] = rng.choice(spec.options["options"])["key"]
        elif spec.type == AUTOGROW:
            template = spec.options["template"]
            names = template.get("names") or [f"{template['prefix']}{at}" for at in range(template["max"])]
            count = min(len(names), template["min"] + rng.choice((0, 0, 1, 2)))
            submitted |= {f"{spec.name}.{name}": None for name in names[:count]}
    return declared.dynamic_inputs({**submitted, **chosen}), chosen


def kinds_of(spec: InputSpec) -> list[str]:
    """Return the types that an input takes, those of a wildcard by example."""
    if spec.type == AUTOGROW:
        ((kind, options),) = spec.options["template"]["input"]["required"].values()
        return kinds_of(InputSpec(spec.name, kind, options))
    if spec.type == MATCH_TYPE:
        allowed = spec.options.get("template", {}).get("allowed_types", ANY_TYPE)
        return list(_ANYTHING) if allowed == ANY_TYPE else allowed.split(",")
    return list(_ANYTHING) if spec.type == ANY_TYPE else str(spec.type).split(",")


def own_widget(rng: random.Random, kind: Any) -> Any:
    """Return a value of a type that no node gives and that is none of the plain ones."""
    return rng.choice(_OWN_WIDGETS.get(str(kind), (None, [], {}, "x", 5)))
