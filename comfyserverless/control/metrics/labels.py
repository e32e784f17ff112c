"""Keep the values of labels few, whoever uses the server and whatever for."""

from __future__ import annotations

from collections.abc import Callable, Collection

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS, HOST_FUNCTIONS

NAMED_TENANTS = 50
OTHER = "(other)"
"""Stands for all that have no value of their own; no tenant and no function can be called so."""


class TenantLabels:
    """Give the first tenants that come a label each, and all others one together.

    known: lists the tenants that there are; a name that is none of theirs gets no label. A label is for ever:
    figures of a tenant never move to another one.
    """

    def __init__(self, known: Callable[[], Collection[TenantId]], most: int = NAMED_TENANTS) -> None:
        self._known = known
        self._most = most
        #: all and only tenants with a label of their own
        self._named: set[TenantId] = set()

    def of(self, tenant: TenantId) -> str:
        """Return the label of a tenant."""
        if tenant in self._named:
            return tenant
        if len(self._named) >= self._most or tenant not in self._known():
            return OTHER
        self._named.add(tenant)
        return tenant


def function_label(function: str) -> str:
    """Return the label of a model function: its name, if it is one that comes with the product."""
    return function if function in BUILTIN_FUNCTIONS or function in HOST_FUNCTIONS else OTHER
