"""Hold the declarations that only the node host may name."""

from __future__ import annotations

from comfyserverless.graph.declaration import Declarations
from comfyserverless.nodes.registry import Registry

HOSTED: Declarations = Registry(())
"""By class name; unlike any name of a node class."""
