"""Hold the declarations that only the node host may name: what packs run through the modules they import."""

from __future__ import annotations

from comfyserverless.graph.declaration import Declarations
from comfyserverless.nodes.hosted import encoding, sampling
from comfyserverless.nodes.registry import Registry

HOSTED: Declarations = Registry((*encoding.NODES, *sampling.NODES))
"""By class name; unlike any name of a node class."""
