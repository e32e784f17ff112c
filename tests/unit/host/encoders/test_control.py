"""Chain controls as ComfyUI does, and write chains as our nodes keep them."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.core.values import ControlNetRef, FileRef
from comfyserverless.host.encoders.control import ControlBase, ControlNet, applications_of, chain_of, to_tree
from comfyserverless.host.layers.refusing import NotSupportedError

REFS = [ControlNetRef(FileRef(f"/{name}")) for name in "ab"]
HINT = torch.arange(12.0).reshape(1, 2, 2, 3)


def application(number: int, strength: float) -> dict[str, object]:
    """Return what our nodes keep."""
    shares = {"start_percent": 0.1, "end_percent": 0.9}
    return {"control_net": ControlNet.of(REFS[number]), "hint": HINT, "strength": strength, **shares}


def test_chain_is_the_applications_again() -> None:
    last = chain_of([application(0, 0.5), application(1, 1.0)])
    assert last.ref == REFS[1]
    assert last.previous_controlnet.strength == 0.5
    assert last.cond_hint_original.shape == (1, 3, 2, 2)
    given = applications_of(last)
    assert given is not None
    assert [each["control_net"] for each in given] == REFS
    assert torch.equal(given[0]["hint"], HINT)
    assert (given[1]["start_percent"], given[1]["end_percent"]) == (0.1, 0.9)


def test_net_alone_is_its_handle() -> None:
    assert to_tree(ControlNet.of(REFS[0])) == REFS[0]


def test_copy_is_attached_to_nothing_and_changes_alone() -> None:
    last = chain_of([application(0, 0.5), application(1, 1.0)])
    copied = last.copy()
    copied.strength = 0.1
    assert copied.previous_controlnet is None
    assert last.strength == 1.0
    assert copied.ref == last.ref


def test_type_that_a_pack_says_is_a_part_of_the_handle() -> None:
    net = ControlNet.of(REFS[0])
    told = net.copy()
    told.set_extra_arg("control_type", [3])
    typed = ControlNetRef(REFS[0].file, (3,))
    assert (to_tree(net), to_tree(told)) == (REFS[0], typed)
    assert ControlNet.of(typed).extra_args == {"control_type": [3]}
    untold = told.copy()
    untold.set_extra_arg("control_type", [])
    assert (to_tree(untold), to_tree(told)) == (REFS[0], typed)


def test_type_stays_with_its_link_of_a_chain() -> None:
    typed = ControlNetRef(REFS[0].file, (3,))
    first = {**application(0, 0.5), "control_net": ControlNet.of(typed)}
    given = applications_of(chain_of([first, application(1, 1.0)]))
    assert given is not None
    assert [each["control_net"] for each in given] == [typed, REFS[1]]


def test_control_of_a_pack_stays_where_it_is() -> None:
    class Own(ControlBase):
        """Computes in its own way."""

    last = ControlNet.of(REFS[0]).set_cond_hint(HINT.movedim(-1, 1)).set_previous_controlnet(Own())
    assert applications_of(last) is None
    assert applications_of(Own()) is None


def test_net_refuses_to_compute_here() -> None:
    with pytest.raises(NotSupportedError, match="get_control"):
        ControlNet.of(REFS[0]).get_control(HINT, 1.0, {}, 1, {})
    with pytest.raises(NotSupportedError, match=r"comfy\.controlnet\.ControlNet"):
        ControlNet()
