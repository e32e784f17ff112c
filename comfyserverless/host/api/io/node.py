"""Define the base class of nodes with a schema, and what they return.

A node runs as class methods of a *clone*: a subclass made for one call that holds the hidden inputs and refuses
assignments, so nothing that a node keeps on its class outlives the call.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from comfyserverless.host.api.io.info import object_info
from comfyserverless.host.api.io.schema import HiddenHolder, Schema
from comfyserverless.host.blocking import ExecutionBlocker


class NodeOutput:
    """What a node returns: values in the order of its outputs, a ui dict or helper, an expansion, a block.

    block_execution: all outputs are blocked, with this message; True for silence.
    """

    def __init__(
        self, *args: Any, ui: Any = None, expand: Mapping[str, Any] | None = None, block_execution: Any = None
    ) -> None:
        self.args = args
        self.ui = ui
        self.expand = expand
        self.block_execution = block_execution

    @property
    def result(self) -> tuple[Any, ...] | None:
        """Return the values, None if there are none."""
        return self.args or None

    def __getitem__(self, index: int) -> Any:
        return self.args[index]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NodeOutput:
        """Make one of the dict form of results: keys `result`, `ui`, `expand`."""
        result = data.get("result", ())
        if isinstance(result, ExecutionBlocker):
            return cls(ui=data.get("ui"), expand=data.get("expand"), block_execution=_message(result))
        values = tuple(result) if isinstance(result, tuple | list) else (result,)
        return cls(*values, ui=data.get("ui"), expand=data.get("expand"))

    @classmethod
    def of(cls, returned: Any, name: str) -> NodeOutput:
        """Make one of what the node `name` returned. Raises TypeError for what nodes may not return."""
        if isinstance(returned, NodeOutput):
            return returned
        if returned is None:
            return cls()
        if isinstance(returned, tuple | list):
            return cls(*returned)
        if isinstance(returned, dict):
            return cls.from_dict(returned)
        if isinstance(returned, ExecutionBlocker):
            return cls(block_execution=_message(returned))
        raise TypeError(
            f"{name} returned a {type(returned).__name__}; nodes return io.NodeOutput, a tuple or None"
        )


def _message(blocker: ExecutionBlocker) -> Any:
    return True if blocker.message is None else blocker.message


class _Derived:
    """An attribute of a node class that is computed from its schema (ComfyUI's V1 attributes)."""

    def __init__(self, compute: Callable[[Any, Schema], Any]) -> None:
        self._compute = compute

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self._compute(owner, owner.cached_schema())


class NodeMeta(ABCMeta):
    """The class of node classes: clones refuse assignments."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if cls.__dict__.get("_is_locked", False) and not name.startswith(("_abc_", "__")):
            raise AttributeError(
                f"{cls.__name__}.{name} cannot be set while the node runs: nodes of this kind keep no state"
            )
        super().__setattr__(name, value)


class ComfyNode(metaclass=NodeMeta):
    """Base class of nodes with a schema. Subclasses define `define_schema` and `execute`, both classmethods."""

    RELATIVE_PYTHON_MODULE: ClassVar[str | None] = None
    hidden: ClassVar[HiddenHolder] = HiddenHolder()
    _is_locked: ClassVar[bool] = False
    _schema: ClassVar[Schema | None] = None

    @classmethod
    def define_schema(cls) -> Schema:
        """Return the schema. Raises NotImplementedError unless the class says it."""
        raise NotImplementedError(f"{cls.__name__} has no define_schema")

    @classmethod
    def execute(cls, **kwargs: Any) -> Any:
        """Run the node. Raises NotImplementedError unless the class says how."""
        raise NotImplementedError(f"{cls.__name__} has no execute")

    @classmethod
    def validate_inputs(cls, **kwargs: Any) -> bool | str:
        """Return True, or what is wrong; asked only of classes that say it themselves."""
        raise NotImplementedError(f"{cls.__name__} has no validate_inputs")

    @classmethod
    def fingerprint_inputs(cls, **kwargs: Any) -> Any:
        """Return what changes when the node has to run again; asked only of classes that say it themselves."""
        raise NotImplementedError(f"{cls.__name__} has no fingerprint_inputs")

    @classmethod
    def check_lazy_status(cls, **kwargs: Any) -> list[str]:
        """Return the lazy inputs that are needed: unless the class says it, those that are not there."""
        return [name for name, value in kwargs.items() if value is None]

    @classmethod
    def GET_SCHEMA(cls) -> Schema:
        """Return the schema afresh (its choices may have changed), complete. Raises ValueError if it
        is wrong.
        """
        schema = cls.define_schema()
        schema.validate()
        schema.finalize()
        cls._origin()._schema = schema
        return schema

    @classmethod
    def cached_schema(cls) -> Schema:
        """Return the schema as it was when it was last asked for."""
        known: Schema | None = cls._origin().__dict__.get("_schema")
        return known or cls.GET_SCHEMA()

    @classmethod
    def _origin(cls) -> Any:
        """Return the class that the pack has written: of a clone, what it was made from."""
        return cls.__bases__[0] if cls.__dict__.get("_is_locked", False) else cls

    @classmethod
    def overrides(cls, method: str) -> bool:
        """Tell whether the class says a method itself, and does not only inherit the base's."""
        return getattr(cls, method).__func__ is not getattr(ComfyNode, method).__func__

    @classmethod
    def locked_clone(cls, hidden: Mapping[str, Any] | None = None) -> type[ComfyNode]:
        """Return the class for one call: with its hidden inputs, and without a place for state."""
        about = {
            "hidden": HiddenHolder(hidden),
            "_is_locked": True,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        clone: Any = NodeMeta(cls.__name__, (cls,), about)
        made: type[ComfyNode] = clone
        return made

    @classmethod
    def PREPARE_CLASS_CLONE(cls, v3_data: Mapping[str, Any] | None = None) -> type[ComfyNode]:
        """Return the class for one call."""
        return cls.locked_clone((v3_data or {}).get("hidden_inputs"))

    @classmethod
    def EXECUTE_NORMALIZED(cls, *args: Any, **kwargs: Any) -> NodeOutput:
        """Run the node and return its output in one form. Raises TypeError for what nodes may not return."""
        return cls.normalized(cls.execute(*args, **kwargs))

    @classmethod
    async def EXECUTE_NORMALIZED_ASYNC(cls, *args: Any, **kwargs: Any) -> NodeOutput:
        """Run an async node and return its output in one form."""
        return cls.normalized(await cls.execute(*args, **kwargs))

    @classmethod
    def normalized(cls, returned: Any) -> NodeOutput:
        """Return an output in one form. Raises ValueError for an expansion that the schema does not
        announce.
        """
        output = NodeOutput.of(returned, cls.__name__)
        if output.expand is not None and not cls.cached_schema().enable_expand:
            raise ValueError(f"{cls.__name__} returned an expansion, and its schema has no enable_expand")
        return output

    @classmethod
    def INPUT_TYPES(cls, include_hidden: bool = True, **unused: Any) -> dict[str, dict[str, Any]]:
        """Return the declared inputs as V1 classes do."""
        schema = cls.GET_SCHEMA()
        sections: dict[str, dict[str, Any]] = dict(schema.sections())
        if include_hidden and schema.hidden:
            sections["hidden"] = {name: (tag,) for name, tag in schema.hidden_tags().items()}
        return sections

    @classmethod
    def GET_NODE_INFO_V1(cls) -> dict[str, Any]:
        """Return the entry of `/object_info`."""
        return object_info(cls.GET_SCHEMA(), cls.RELATIVE_PYTHON_MODULE or "nodes")

    SCHEMA = _Derived(lambda owner, schema: schema)
    FUNCTION = _Derived(lambda owner, schema: _function_of(owner))
    RETURN_TYPES = _Derived(lambda owner, schema: [output.get_io_type() for output in schema.outputs])
    RETURN_NAMES = _Derived(
        lambda owner, schema: [output.display_name or str(output.io_type) for output in schema.outputs]
    )
    OUTPUT_IS_LIST = _Derived(lambda owner, schema: [bool(output.is_output_list) for output in schema.outputs])
    OUTPUT_TOOLTIPS = _Derived(lambda owner, schema: [output.tooltip for output in schema.outputs])
    CATEGORY = _Derived(lambda owner, schema: schema.category)
    DESCRIPTION = _Derived(lambda owner, schema: schema.description)
    OUTPUT_NODE = _Derived(lambda owner, schema: bool(schema.is_output_node))
    INPUT_IS_LIST = _Derived(lambda owner, schema: bool(schema.is_input_list))
    NOT_IDEMPOTENT = _Derived(lambda owner, schema: bool(schema.not_idempotent))
    DEPRECATED = _Derived(lambda owner, schema: bool(schema.is_deprecated))
    EXPERIMENTAL = _Derived(lambda owner, schema: bool(schema.is_experimental))
    DEV_ONLY = _Derived(lambda owner, schema: bool(schema.is_dev_only))
    API_NODE = _Derived(lambda owner, schema: bool(schema.is_api_node))
    ACCEPT_ALL_INPUTS = _Derived(lambda owner, schema: bool(schema.accept_all_inputs))
    HAS_INTERMEDIATE_OUTPUT = _Derived(lambda owner, schema: bool(schema.has_intermediate_output))
    SEARCH_ALIASES = _Derived(lambda owner, schema: schema.search_aliases)
    ESSENTIALS_CATEGORY = _Derived(lambda owner, schema: schema.essentials_category)


def _function_of(owner: Any) -> str:
    return "EXECUTE_NORMALIZED_ASYNC" if inspect.iscoroutinefunction(owner.execute) else "EXECUTE_NORMALIZED"
