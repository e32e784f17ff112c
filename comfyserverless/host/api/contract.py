"""Call classes with a schema (V3); see `host.contract.Contract`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from comfyserverless.core.hosting import NodeInfo
from comfyserverless.host.api.calling import Method, outcome_v3, prepare_v3
from comfyserverless.host.api.describing import describe_v3, is_v3
from comfyserverless.host.api.io.node import NodeOutput
from comfyserverless.host.contract import ClassEntry, HiddenValues


class SchemaContract:
    """Classes with a schema: class methods of a clone that holds the hidden inputs, without instances."""

    def matches(self, cls: Any) -> bool:
        """Take subclasses of ComfyNode."""
        return is_v3(cls)

    def describe(self, entry: ClassEntry, given: Mapping[str, Any] | None) -> NodeInfo:
        """Describe a class afresh, under the name that it is registered with."""
        return describe_v3(entry.cls, given, name=entry.name, display_name=entry.display_name)

    def check(self, entry: ClassEntry, given: Mapping[str, Any], input_types: Mapping[str, str]) -> Any:
        """Call validate_inputs with what it names."""
        parameters = inspect.signature(entry.cls.validate_inputs).parameters
        types = {"input_types": dict(input_types)} if "input_types" in parameters else {}
        return prepare_v3(entry.cls, None, "validate_inputs")(**given, **types)

    def change_token(self, entry: ClassEntry, given: Mapping[str, Any], hidden: HiddenValues) -> Any:
        """Call fingerprint_inputs."""
        return prepare_v3(entry.cls, hidden.arguments(), "fingerprint_inputs")(**given)

    def new_instance(self, entry: ClassEntry) -> Any:
        """Return None: these classes keep no state."""
        return None

    def function(self, entry: ClassEntry, instance: Any, method: str, hidden: HiddenValues) -> Any:
        """Return what calls the method with inputs by their submitted names."""
        return prepare_v3(entry.cls, hidden.arguments(), cast("Method", method))

    def arguments(
        self, entry: ClassEntry, method: str, call: Mapping[str, Any], hidden: HiddenValues
    ) -> dict[str, Any]:
        """Return the inputs by their submitted names; `function` nests them."""
        return dict(call)

    def outcome(self, entry: ClassEntry, returned: Any) -> Any:
        """Return what `execute` gave as V1 nodes return it."""
        return outcome_v3(returned) if isinstance(returned, NodeOutput) else returned


CONTRACT = SchemaContract()
