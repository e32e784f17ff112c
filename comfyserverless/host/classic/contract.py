"""Call classes of the first contract; see `host.contract.Contract`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from comfyserverless.core.hosting import NodeInfo
from comfyserverless.host.classic.describing import describe
from comfyserverless.host.contract import ClassEntry, HiddenValues


class ClassicContract:
    """The first contract: instances with a method of any name, which get their hidden inputs by name."""

    def matches(self, cls: Any) -> bool:
        """Take every class that no other contract takes."""
        return True

    def describe(self, entry: ClassEntry, given: Mapping[str, Any] | None) -> NodeInfo:
        """Describe a class afresh."""
        return describe(entry, given)

    def check(self, entry: ClassEntry, given: Mapping[str, Any], input_types: Mapping[str, str]) -> Any:
        """Call VALIDATE_INPUTS."""
        function = entry.cls.VALIDATE_INPUTS
        parameters = inspect.signature(function).parameters
        takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        shown = _as_called(entry, given)
        arguments = {name: value for name, value in shown.items() if takes_all or name in parameters}
        if "input_types" in parameters:
            arguments["input_types"] = dict(input_types)
        return function(**arguments)

    def change_token(self, entry: ClassEntry, given: Mapping[str, Any], hidden: HiddenValues) -> Any:
        """Call IS_CHANGED; it is a class method, a static one, or in the wild a plain function."""
        return entry.cls.IS_CHANGED(**_as_called(entry, {**given, **hidden.arguments()}))

    def new_instance(self, entry: ClassEntry) -> Any:
        """Make an instance."""
        return entry.cls()

    def function(self, entry: ClassEntry, instance: Any, method: str, hidden: HiddenValues) -> Any:
        """Return the method; what is hidden comes with the arguments."""
        return getattr(instance, str(entry.cls.FUNCTION) if method == "execute" else method)

    def arguments(
        self, entry: ClassEntry, method: str, call: Mapping[str, Any], hidden: HiddenValues
    ) -> dict[str, Any]:
        """Return the arguments with the hidden ones among them; one that takes lists gets them as lists,
        too."""
        return {**call, **_as_called(entry, hidden.arguments())}

    def outcome(self, entry: ClassEntry, returned: Any) -> Any:
        """Return it as it is."""
        return returned


def _as_called(entry: ClassEntry, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return single values as a class gets them: as lists of one where it takes lists."""
    is_list = bool(getattr(entry.cls, "INPUT_IS_LIST", False))
    return {name: [value] if is_list else value for name, value in values.items()}


CONTRACT = ClassicContract()
