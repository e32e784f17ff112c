"""Declare model functions: name, lane, ports; and list the built-in ones with what each port holds.

This is the vocabulary that both towers share. The control tower lowers nodes to these names and
schedules by lane and callback ports without importing torch; the functions room implements them, and a
test proves that every implementation's `setup_io` equals its entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

Lane = Literal["gpu", "cpu", "pack", "async"]
"""Which executor runs a function: `gpu` for model compute (on any device), `cpu` for host work, both of a
worker; `pack` for nodes of custom packs, one at a time, and `async` for those whose functions are coroutines,
of the node host."""

LANES: tuple[Lane, ...] = ("gpu", "cpu", "pack", "async")


class Port(msgspec.Struct, frozen=True):
    """One named input or output of a model function.

    callback: of an input: the consumer may start before it is complete, and sees lazy sequences (paper, 5.2);
    of an output: it is made element by element (see sdk.modelfn.Streamed), so that such a consumer gains by it.
    """

    name: str
    callback: bool = False


class FunctionSpec(msgspec.Struct, frozen=True):
    """The declaration of one model function; `inputs` and `outputs` are in declared order."""

    name: str
    lane: Lane
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def callback_ports(self) -> frozenset[str]:
        """Name the inputs that may be consumed while their producer still runs."""
        return frozenset(port.name for port in self.inputs if port.callback)

    def publishes(self) -> bool:
        """Tell whether an output is made element by element."""
        return any(port.callback for port in self.outputs)


def _spec(name: str, lane: Lane, inputs: str, outputs: str) -> FunctionSpec:
    """Build a spec from space-separated port names; a trailing `*` marks a callback port."""
    return FunctionSpec(name, lane, _ports(inputs), _ports(outputs))


def _ports(words: str) -> tuple[Port, ...]:
    return tuple(Port(word.rstrip("*"), word.endswith("*")) for word in words.split())


# What the ports hold. Shapes: B batch, C latent channels, H W pixels, h w latent cells, T tokens, D features.
#   clip ClipRef | model ModelRef | vae VaeRef | control_net ControlNetRef | upscaler UpscaleRef | file FileRef
#   cond        [B, T, D] float32 hidden states; pooled [B, D] float32 or None
#   positive,   CONDITIONING: list of [cond TensorRef, options dict]; options may hold pooled_output (TensorRef
#   negative    or None) and control: a list of applications in chain order, each {control_net, hint (IMAGE
#               TensorRef), strength, start_percent, end_percent}
#   samples     [B, C, h, w] float32 in the family's *output* latent units (what a LATENT's `samples` holds)
#   latent      a LATENT: {samples: TensorRef, batch_index?: list[int], noise_mask?: TensorRef}
#   noise_mask  [B, H, W] or [B, 1, H, W] float32, any size, 1 where the latent is sampled; None: all of it
#   state       sampler state: a dict of literals and TensorRefs, opaque to the control tower
#   plan        {steps: int, maximum: int, is_dynamic: bool, shape: [B, C, h, w] of the latent, evaluations:
#               list of evaluations}: one per model call, each {step: int, last_of_step: bool, controls:
#               list[int], branches}; `controls` are indices into `applications` that are active at its sigma;
#               `branches` are those of each branch, [positive's, negative's], or None where not both take part;
#               `maximum` is what progress counts to. If is_dynamic, `evaluations` holds the first only (none if
#               there is nothing to do): `steps` is void
#   guide       how more than two sides are put together: {mode, middle: CONDITIONING, scale: float}, or None
#   options     settings of the sampler by name; `shares`: levels among them, by their share of the way
#   operation   of latent.operate: its name; settings: its keyword arguments
#   sigmas      [N] float32: the levels to walk; None: chosen by scheduler, steps and denoise
#   estimate    what the last step said of the clean latent, as samples; None unless keeps_estimate is true
#   upcoming    the evaluation that follows in a dynamic walk; None at its end, and in all other walks
#   applications  the distinct control applications of positive and negative, in first-seen order
#   branch      what of an evaluation controlnet.run computes for: `positive`, `negative`, or `both` together
#   residuals   what one ControlNet adds, per model batch of a branch: dict str(batch index) -> list of
#               TensorRefs, input blocks in order, then the middle block
#   uncond      the negative's estimate of the clean latent, where it is made apart from the step:
#               {denoised: [TensorRef]}; in: None where the step evaluates both branches, together
#   guided      denoise.evaluate gives what guidance makes of the sides, and the negative beside it
#   tokens      by kind of text model (`l`, `g`, `h`), chunks of [id, or vector [D] as TensorRef, and weight]
#   batched_s,  seconds of an evaluation with both branches together, and of the positive's alone, without
#   branch_s    ControlNets
#   images      IMAGE [B, H, W, 3 or 4] float32 in 0..1;  mask [B, H, W] float32 in 0..1
#   application  index into `applications`: the one that controlnet.run computes
#   width,      latent.empty and image.scale: pixels; latent.upscale: latent cells (the node divides by 8);
#   height      always above 0: the nodes resolve ComfyUI's 0 ("keep the ratio") before
#   preview     in: None for no preview (as of calls that do not end a step), or {size_px: longer side,
#               decoders: None for latent2rgb, else FileRef of each TAESD decoder by name}; out: bytes of a JPEG
#               or PNG, or None (of a step they come later, see InvocationShown); index: which image of a batch
#   grow_by     pixels by which vae.encode_inpaint widens the noise mask
#   x, y        where a part begins, in pixels; in latent.composite, as feather, in cells
#   left ...    widths of the four sides in pixels
#   color       0xRRGGBB
#   start,      latent.slice, image.slice: items of the batch
#   length
#   text        one text, or a dict of texts by kind of text model
#   pattern     a regular expression; flags: names of what it ignores; group: number of one of its groups
#   parts       ....join, ....pick: batches; picks: lists of [number of a part, its first item, the item after
#               the last]; masks: noise masks of the parts, None for one without
#   limit       characters that a text may have that is made
#   to, origin  conds; what is taken of `origin` goes into `to`; ..._pooled: their pooled vectors or None
#   first,      two batches that are combined; the second takes the size of the first
#   second
#   axis        what is flipped: `x` upside down, `y` left side right; concat and cut: along which axis
#   turns       right angles, clockwise
#   tiles       list of [C, h, w], one per box; of tiles.blend: a list of such lists, one per part
#   item, boxes which of the batch, and its tiles: lists of [top, left, height, width] in cells of what is cut
#   parts, size, of one pass of a plan of tiles, scale of the plan (see functions.tiles.planning);
#   overlap     total, previous: sums over passes, [B, C, H, W]
#   meaning     of such a sum: `latent`, `decoded` (-1..1) or `picture` (0..1)
#   metadata    dict of texts by key (`prompt`, `workflow` ...: JSON texts), empty when saving without
#   lora_type   `standard`: factors of at most `rank` columns; `full_diff`: the weights as they are
#   title       what the file is called, for people; kinds: of text models (`l`, `g`, `h`); kind: one of them
#   files       list of paths written under `directory`, one per batch item, named `{stem}_{index}.part`
BUILTIN_FUNCTIONS: Mapping[str, FunctionSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            _spec("text.encode", "gpu", "clip text", "cond pooled"),
            _spec("text.encode_tokens", "gpu", "clip tokens", "cond pooled"),
            _spec(
                "sample.begin",
                "gpu",
                "model latent positive negative applications seed steps cfg guide sampler options scheduler"
                " sigmas denoise start_step last_step force_full_denoise add_noise keeps_estimate",
                "state plan",
            ),
            _spec(
                "denoise.step",
                "gpu",
                "model state positive negative cfg guide applications residuals* uncond* single_evaluation"
                " preview",
                "state preview upcoming",
            ),
            _spec(
                "denoise.negative",
                "gpu",
                "model state positive negative cfg guide applications residuals*",
                "uncond*",
            ),
            _spec(
                "denoise.weigh",
                "gpu",
                "model state positive negative cfg guide applications",
                "batched_s branch_s",
            ),
            _spec(
                "controlnet.run",
                "gpu",
                "model control_net state positive negative cfg guide applications application branch",
                "residuals*",
            ),
            _spec(
                "denoise.evaluate",
                "gpu",
                "model state positive negative cfg guide applications residuals* guided",
                "positive negative middle",
            ),
            _spec("sample.end", "gpu", "model state", "samples estimate"),
            _spec("vae.decode", "gpu", "vae samples", "images"),
            _spec("vae.encode", "gpu", "vae pixels", "samples"),
            _spec("vae.encode_inpaint", "gpu", "vae pixels mask grow_by", "samples noise_mask"),
            _spec("latent.empty", "cpu", "width height batch_size", "samples"),
            _spec("latent.upscale", "cpu", "samples width height method crop", "samples"),
            _spec("model.save", "cpu", "model directory stem metadata title", "files"),
            _spec("checkpoint.save", "cpu", "model clip vae directory stem metadata title", "files"),
            _spec("clip.kinds", "cpu", "clip", "kinds"),
            _spec("lora.save", "gpu", "model clip rank lora_type has_biases directory stem metadata", "files"),
            _spec("clip.save", "cpu", "clip kind directory stem metadata", "files"),
            _spec("vae.save", "cpu", "vae directory stem metadata", "files"),
            _spec("latent.save", "cpu", "samples directory stem metadata", "files"),
            _spec("latent.load", "cpu", "file", "samples"),
            _spec("latent.composite", "cpu", "samples_to samples_from x y feather", "samples"),
            _spec("latent.repeat", "cpu", "samples noise_mask amount", "samples noise_mask"),
            _spec("latent.slice", "cpu", "samples noise_mask start length", "samples noise_mask"),
            _spec("image.load", "cpu", "file", "images mask"),
            _spec("image.load_mask", "cpu", "file channel", "mask"),
            _spec("image.save", "cpu", "images directory stem metadata compress_level", "files"),
            _spec("image.scale", "cpu", "images width height method crop", "images"),
            _spec("image.empty", "cpu", "width height batch_size color", "images"),
            _spec("image.invert", "cpu", "images", "images"),
            _spec("image.crop", "cpu", "images x y width height", "images"),
            _spec("image.pad", "cpu", "images left top right bottom feathering", "images mask"),
            _spec("image.canny", "cpu", "images low_threshold high_threshold", "images"),
            _spec("image.to_mask", "cpu", "images channel", "mask"),
            _spec("sigmas.schedule", "gpu", "model scheduler steps denoise", "sigmas"),
            _spec("sigmas.beta", "gpu", "model steps alpha beta", "sigmas"),
            _spec("sigmas.turbo", "gpu", "model steps denoise", "sigmas"),
            _spec("sigmas.at_percent", "gpu", "model percent is_actual", "sigma"),
            _spec("sigmas.shape", "cpu", "shape sigmas settings", "sigmas"),
            _spec("sigmas.split", "cpu", "sigmas step", "high low"),
            _spec("sigmas.set", "cpu", "sigmas first", "sigmas"),
            _spec("latent.operate", "cpu", "samples operation settings", "samples"),
            _spec("latent.noise", "gpu", "model samples batch_index sigmas seed", "samples"),
            _spec("cond.average", "cpu", "to origin to_pooled origin_pooled strength", "cond pooled"),
            _spec("cond.concat", "cpu", "to origin", "cond"),
            _spec("cond.zero", "cpu", "cond pooled", "cond pooled"),
            _spec("image.batch", "cpu", "first second", "images"),
            _spec("image.blend", "cpu", "first second factor mode", "images"),
            _spec("image.composite", "cpu", "destination source mask x y resize_source", "images"),
            _spec(
                "image.porter_duff",
                "cpu",
                "source source_alpha destination destination_alpha mode",
                "images mask",
            ),
            _spec("image.split_alpha", "cpu", "images", "images mask"),
            _spec("image.join_alpha", "cpu", "images alpha", "images"),
            _spec("image.stitch", "cpu", "first second direction matches_size spacing color", "images"),
            _spec("image.blur", "cpu", "images radius sigma", "images"),
            _spec("image.sharpen", "cpu", "images radius sigma alpha", "images"),
            _spec("image.noise", "cpu", "images seed strength", "images"),
            _spec("image.quantize", "cpu", "images colors dither", "images"),
            _spec("image.morphology", "cpu", "images operation size", "images"),
            _spec("image.flip", "cpu", "images axis", "images"),
            _spec("image.rotate", "cpu", "images turns", "images"),
            _spec("image.repeat", "cpu", "images amount", "images"),
            _spec("image.slice", "cpu", "images start length", "images"),
            _spec("image.frame", "cpu", "images width height color method", "images"),
            _spec("image.color_mask", "cpu", "images color", "mask"),
            _spec("image.to_yuv", "cpu", "images", "y u v"),
            _spec("image.from_yuv", "cpu", "y u v", "images"),
            _spec("mask.crop", "cpu", "mask x y width height", "mask"),
            _spec("mask.threshold", "cpu", "mask value", "mask"),
            _spec("latent.blend", "cpu", "first second factor", "samples"),
            _spec("latent.interpolate", "cpu", "first second ratio", "samples"),
            _spec("latent.sum", "cpu", "first second sign", "samples"),
            _spec("latent.multiply", "cpu", "samples multiplier", "samples"),
            _spec("latent.paste", "cpu", "destination source mask x y resize_source", "samples"),
            _spec("latent.flip", "cpu", "samples axis", "samples"),
            _spec("latent.rotate", "cpu", "samples turns", "samples"),
            _spec("latent.crop", "cpu", "samples x y width height", "samples"),
            _spec("latent.batch", "cpu", "first second", "samples"),
            _spec("latent.concat", "cpu", "first second axis", "samples"),
            _spec("latent.cut", "cpu", "samples axis index amount", "samples"),
            _spec("latent.cut_to_batch", "cpu", "samples axis size", "samples"),
            _spec("mask.solid", "cpu", "value width height", "mask"),
            _spec("mask.invert", "cpu", "mask", "mask"),
            _spec("mask.to_image", "cpu", "mask", "images"),
            _spec("mask.grow", "cpu", "mask expand tapered_corners", "mask"),
            _spec("mask.feather", "cpu", "mask left top right bottom", "mask"),
            _spec("mask.composite", "cpu", "destination source x y operation", "mask"),
            _spec("text.match", "cpu", "text pattern flags", "matches"),
            _spec("text.extract", "cpu", "text pattern flags mode group limit", "text"),
            _spec("text.substitute", "cpu", "text pattern flags replacement count limit", "text"),
            _spec(
                "image.save_webp",
                "cpu",
                "images directory stem metadata frames_per_s is_lossless quality effort",
                "files",
            ),
            _spec(
                "image.save_apng", "cpu", "images directory stem metadata frames_per_s compress_level", "files"
            ),
            _spec("image.encode", "cpu", "images index", "preview"),
            _spec("image.save_deep", "cpu", "images directory stem metadata compress_level", "files"),
            _spec("text.save", "cpu", "text directory stem metadata", "files"),
            _spec("text.show", "cpu", "value limit", "text"),
            _spec("image.join", "cpu", "parts", "images"),
            _spec("mask.join", "cpu", "parts", "mask"),
            _spec("latent.join", "cpu", "parts", "samples"),
            _spec("latent.pick", "cpu", "parts masks picks", "samples noise_mask"),
            _spec("image.pick", "cpu", "parts picks", "images"),
            _spec("image.merge_tiles", "cpu", "parts boxes width height overlap", "images"),
            _spec("mask.scale", "cpu", "mask width height method crop", "mask"),
            _spec("image.erase", "cpu", "images mask", "images mask"),
            _spec("vae.plan_tiles", "gpu", "vae shape tile_size overlap is_decoding", "plan"),
            _spec("vae.decode_tiles", "gpu", "vae samples item boxes", "tiles"),
            _spec("vae.encode_tiles", "gpu", "vae pixels item boxes", "tiles"),
            _spec("image.plan_upscale", "gpu", "upscaler shape", "plan"),
            _spec("image.upscale_tiles", "gpu", "upscaler images item boxes", "tiles"),
            _spec("tiles.blend", "cpu", "tiles parts size overlap scale previous", "total"),
            _spec("tiles.mean", "cpu", "total passes meaning", "mean"),
        )
    }
)


HOST_LANES: frozenset[Lane] = frozenset({"pack", "async"})
"""The lanes of the node host. What ran there when it was lost is not tried again: nodes of packs have
effects."""

HOST_FUNCTIONS: Mapping[str, FunctionSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            _spec("pack.call", "pack", "node method calls about", "answers"),
            _spec("pack.call_async", "async", "node method calls about", "answers"),
        )
    }
)
"""What the node host runs. Ports:

node {id, class_type, python_module}; method `execute` or `check_lazy_status`; calls: one dict of arguments by
name for each mapped call, in order; about: {prompt_id, run, tenant, client_id, preview_method, extra_data,
places {input, output, temp, user}, hidden {argument: TAG}, parts {graph, workflow: true if needed; nodes: how
many added ones}: of the prompt, which the host asks for}; answers: one dict for each call, {result: list of
output values, ui: dict or None, expand: API graph or None, blocked: None or {message: text or None}}; for
check_lazy_status {names: list of input names that are needed}. Of a slot with OUTPUT_IS_LIST the output value
is a list. An item of result may be {"__blocked__": text or None}, and, with expand, {"__link__": [node id,
slot]}."""
