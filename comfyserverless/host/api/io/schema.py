"""Define what a node class says of itself: its schema, hidden inputs, price and replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from comfyserverless.host.api.io.base import Described, Input, Output, plain, taking
from comfyserverless.host.api.io.dynamic import sections_of


class Hidden(str, Enum):  # noqa: UP042  packs see a plain mixture
    """What a node may ask for beside its inputs; the value is the tag."""

    unique_id = "UNIQUE_ID"
    prompt = "PROMPT"
    extra_pnginfo = "EXTRA_PNGINFO"
    dynprompt = "DYNPROMPT"
    auth_token_comfy_org = "AUTH_TOKEN_COMFY_ORG"
    api_key_comfy_org = "API_KEY_COMFY_ORG"
    comfy_usage_source = "COMFY_USAGE_SOURCE"
    execution_list = "EXECUTION_LIST"


class HiddenHolder:
    """The hidden inputs of a running node by name; what was not asked for, and unknown names, are None."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        vars(self).update(dict.fromkeys(member.name for member in Hidden))
        vars(self).update(values or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class PriceBadgeDepends(Described):
    """Which widgets and inputs a price depends on."""

    parameters = taking(widgets=None, inputs=None, input_groups=None)


class PriceBadge(Described):
    """What a run of a node costs, as an expression that the page evaluates."""

    parameters = taking("expr", depends_on=None, engine="jsonata")
    expr: str
    engine: str
    depends_on: PriceBadgeDepends | None

    def as_dict(self, inputs: Iterable[Input] = ()) -> dict[str, Any]:
        """Return the entry of `/object_info`."""
        depends = vars(self.depends_on) if self.depends_on is not None else {}
        types = {each.id: each.get_io_type() for each in inputs}
        widgets = [{"name": name, "type": types.get(name, "*")} for name in depends.get("widgets") or []]
        parts = {
            "widgets": widgets,
            "inputs": list(depends.get("inputs") or []),
            "input_groups": list(depends.get("input_groups") or []),
        }
        return {"engine": self.engine, "depends_on": parts, "expr": self.expr}


class NodeReplace(Described):
    """Say that one class has taken the place of another, and how inputs and outputs move."""

    parameters = taking(
        "new_node_id", "old_node_id", old_widget_ids=None, input_mapping=None, output_mapping=None
    )
    new_node_id: str
    old_node_id: str
    old_widget_ids: list[str] | None
    input_mapping: list[Any] | None
    output_mapping: list[Any] | None

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of `/node_replacements`."""
        return {name: plain(getattr(self, name)) for name in self.parameters}


class Schema(Described):
    """Describe a node class. node_id: the class name in prompts; outputs: in the order of returned values."""

    parameters = taking(
        "node_id",
        display_name=None,
        category="sd",
        inputs=None,
        outputs=None,
        hidden=None,
        description="",
        search_aliases=None,
        is_input_list=False,
        is_output_node=False,
        is_deprecated=False,
        is_experimental=False,
        is_dev_only=False,
        is_api_node=False,
        price_badge=None,
        not_idempotent=False,
        enable_expand=False,
        accept_all_inputs=False,
        essentials_category=None,
        has_intermediate_output=False,
        loop_boundary=None,
    )
    node_id: str
    display_name: str | None
    category: str
    inputs: list[Input]
    outputs: list[Output]
    hidden: list[Hidden]
    description: str
    search_aliases: list[str]
    is_input_list: bool
    is_output_node: bool
    is_deprecated: bool
    is_experimental: bool
    is_dev_only: bool
    is_api_node: bool
    price_badge: PriceBadge | None
    not_idempotent: bool
    enable_expand: bool
    accept_all_inputs: bool
    essentials_category: str | None
    has_intermediate_output: bool
    loop_boundary: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("inputs", "outputs", "hidden", "search_aliases"):
            setattr(self, name, list(getattr(self, name) or []))

    def validate(self) -> None:
        """Raise ValueError if ids are not unique, or an input makes no sense."""
        ends: Sequence[Input] | Sequence[Output]
        for kind, ends in (("input", self.inputs), ("output", self.outputs)):
            ids = Counter(end.id for end in ends if end.id is not None)
            repeated = [name for name, count in ids.items() if count > 1]
            if repeated:
                raise ValueError(
                    f"{self.node_id} has several {kind}s with the ids {', '.join(map(str, repeated))}"
                )
            for end in ends:
                end.validate()

    def finalize(self) -> None:
        """Add what ComfyUI adds: hidden inputs of output and API nodes, ids of outputs that have none."""
        wanted = list(self.hidden)
        if self.is_output_node:
            wanted += [Hidden.prompt, Hidden.extra_pnginfo]
        if self.is_api_node:
            wanted += [Hidden.auth_token_comfy_org, Hidden.api_key_comfy_org, Hidden.comfy_usage_source]
        self.hidden = list(dict.fromkeys(wanted))
        for index, output in enumerate(self.outputs):
            if output.id is None:
                output.id = f"_{index}_{output.io_type}_"

    def sections(self) -> dict[str, dict[str, tuple[Any, dict[str, Any]]]]:
        """Return the declared inputs: section -> name -> (type, options); `required` is always there."""
        return {"required": {}, **sections_of(self.inputs)}

    def hidden_tags(self) -> dict[str, str]:
        """Return the hidden inputs: name -> tag."""
        return {Hidden(each).name: Hidden(each).value for each in self.hidden}
