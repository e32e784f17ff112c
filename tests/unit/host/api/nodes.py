"""Node classes with a schema that tests describe and call."""

from __future__ import annotations

from typing import Any, ClassVar

from comfyserverless.host.api.io.node import ComfyNode, NodeOutput
from tests.unit.host.api.schemas import io


class Plain(ComfyNode):
    """Nothing but what is needed."""

    @classmethod
    def define_schema(cls) -> Any:
        """Return the schema."""
        return io.Schema(
            "Plain",
            inputs=[io.Int.Input("a"), io.String.Input("b", optional=True)],
            outputs=[io.Int.Output(display_name="sum"), io.String.Output()],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, a: int, b: str = "?") -> Any:
        """Return the arguments and the id."""
        return io.NodeOutput(a, f"{b}{cls.hidden.unique_id}")


class Rich(ComfyNode):
    """Everything that a class may say."""

    calls: ClassVar[list[str]] = []

    @classmethod
    def define_schema(cls) -> Any:
        """Return the schema."""
        cls.calls.append("define_schema")
        images = io.Autogrow.TemplatePrefix(io.Image.Input("image"), prefix="image", min=1, max=9)
        modes = [
            io.DynamicCombo.Option("off", []),
            io.DynamicCombo.Option("on", [io.Float.Input("strength", lazy=True)]),
        ]
        return io.Schema(
            "Rich",
            display_name="Rich node",
            inputs=[
                io.Int.Input("seed", control_after_generate=True),
                io.Autogrow.Input("images", template=images),
                io.DynamicCombo.Input("mode", options=modes),
            ],
            outputs=[io.Image.Output(is_output_list=True), io.Combo.Output(options=["a", "b"])],
            is_output_node=True,
            not_idempotent=True,
            enable_expand=True,
        )

    @classmethod
    def validate_inputs(cls, seed: int, mode: Any = None, input_types: Any = None) -> Any:
        """Return what is wrong."""
        return True if seed else f"{mode} {input_types}"

    @classmethod
    def fingerprint_inputs(cls, **kwargs: Any) -> Any:
        """Return the arguments."""
        return kwargs

    @classmethod
    def check_lazy_status(cls, **kwargs: Any) -> Any:
        """Ask for what is not there, by its submitted name."""
        value, name = kwargs["mode"].get("strength", (0, ""))
        return [name] if value is None else []

    @classmethod
    async def execute(cls, **kwargs: Any) -> Any:
        """Return the arguments."""
        return io.NodeOutput(kwargs, ui={"text": ["t"]})


class Lists(ComfyNode):
    """Takes all its inputs as lists."""

    @classmethod
    def define_schema(cls) -> Any:
        """Return the schema."""
        modes = [io.DynamicCombo.Option("on", [io.Float.Input("strength")])]
        return io.Schema(
            "Lists",
            inputs=[io.DynamicCombo.Input("mode", options=modes)],
            outputs=[io.AnyType.Output()],
            is_input_list=True,
        )

    @classmethod
    def execute(cls, mode: Any) -> Any:
        """Return the argument."""
        return (mode,)


def returning(value: Any, **schema: Any) -> type[ComfyNode]:
    """Return a class whose execute returns a value."""

    class Returning(ComfyNode):
        """Returns a value."""

        @classmethod
        def define_schema(cls) -> Any:
            """Return the schema."""
            return io.Schema("Returning", outputs=[io.AnyType.Output()], **schema)

        @classmethod
        def execute(cls, **kwargs: Any) -> Any:
            """Return the value."""
            return value

    return Returning


def output_of(value: Any, **schema: Any) -> NodeOutput:
    """Return the output of a class whose execute returns a value."""
    return returning(value, **schema).EXECUTE_NORMALIZED()
