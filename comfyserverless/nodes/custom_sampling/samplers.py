"""Choose a sampler, by name or with the settings of its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from comfyserverless.core.samplers import SAMPLER_NAMES
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.custom_sampling import kinds
from comfyserverless.nodes.specs import choice, number, socket, whole
from comfyserverless.nodes.taking import Inputs, take_model

_MODULE, _ADVANCED = "comfy_extras.nodes_custom_sampler", "comfy_extras.nodes_advanced_samplers"


async def _select(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((kinds.sampler(inputs["sampler_name"]),))


async def _sa_solver(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """The levels between which noise is added are found by their share of the way, on the worker."""
    take_model(inputs)  # the one that samples says what a share of the way is
    shares = {"start_sigma": inputs["sde_start_percent"], "end_sigma": inputs["sde_end_percent"]}
    options = {name: inputs[name] for name in ("eta", "s_noise", "predictor_order", "corrector_order")}
    name = "sa_solver_pece" if inputs["use_pece"] else "sa_solver"
    chosen = kinds.sampler(name, **options, simple_order_2=inputs["simple_order_2"], shares=shares)
    return NodeResult((chosen,))


async def _euler_cfg_pp(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    is_alternative = inputs["version"] == "alternative"
    options: dict[str, Value] = {"is_alternative": True} if is_alternative else {}
    return NodeResult((kinds.sampler("euler_cfg_pp", **options),))


async def _lcm_upscale(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    names = {"ratio": "scale_ratio", "steps": "scale_steps", "method": "upscale_method"}
    upscale: dict[str, Value] = {name: inputs[given] for name, given in names.items()}
    return NodeResult((kinds.sampler("lcm", upscale=upscale),))


def _of_family(name: Callable[[Inputs], str], *options: str) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        given: dict[str, Value] = {option: inputs[option] for option in options}
        return NodeResult((kinds.sampler(name(inputs), **given),))

    return lower


def _named(name: str) -> Callable[[Inputs], str]:
    return lambda inputs: name


def _on_device(name: str) -> Callable[[Inputs], str]:
    return lambda inputs: name if inputs["noise_device"] == "cpu" else f"{name}_gpu"


def _dpmpp_2m(inputs: Inputs) -> str:
    name = "dpmpp_2m_sde_heun" if inputs["solver_type"] == "heun" else "dpmpp_2m_sde"
    return _on_device(name)(inputs)


def _free(name: str, default: float, high: float = 100.0, low: float = 0.0) -> InputSpec:
    return number(name, default, low, high, step=0.01, round=False)


_ETA, _S_NOISE = _free("eta", 1.0), _free("s_noise", 1.0)
_DEVICE = choice("noise_device", ("gpu", "cpu"))


def _share(name: str, default: float) -> InputSpec:
    return number(name, default, 0.0, 1.0, step=0.001)


def _sampler(
    name: str, lower: Lowering, inputs: Sequence[InputSpec], display_name: str = ""
) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=display_name,
        category="sampling/custom_sampling/samplers",
        python_module=_MODULE,
        lower=lower,
        inputs=inputs,
        outputs=(OutputSpec("SAMPLER"),),
    )


_ADAPTIVE = (
    whole("order", 3, 2, 3),
    _free("rtol", 0.05),
    _free("atol", 0.0078),
    _free("h_init", 0.05),
    _free("pcoeff", 0.0),
    _free("icoeff", 1.0),
    _free("dcoeff", 0.0),
    _free("accept_safety", 0.81),
    _free("eta", 0.0),
    _S_NOISE,
)

NODES = (
    _sampler("KSamplerSelect", _select, (choice("sampler_name", SAMPLER_NAMES),)),
    _sampler(
        "SamplerEulerAncestral", _of_family(_named("euler_ancestral"), "eta", "s_noise"), (_ETA, _S_NOISE)
    ),
    _sampler(
        "SamplerEulerAncestralCFGPP",
        _of_family(_named("euler_ancestral_cfg_pp"), "eta", "s_noise"),
        (_free("eta", 1.0, 1.0), _free("s_noise", 1.0, 10.0)),
        "SamplerEulerAncestralCFG++",
    ),
    NodeDeclaration(
        name="SamplerLCMUpscale",
        category="sampling/custom_sampling/samplers",
        python_module=_ADVANCED,
        lower=_lcm_upscale,
        inputs=(
            number("scale_ratio", 1.0, 0.1, 20.0, step=0.01),
            whole("scale_steps", -1, -1, 1000, step=1),
            choice("upscale_method", ("bislerp", "nearest-exact", "bilinear", "area", "bicubic")),
        ),
        outputs=(OutputSpec("SAMPLER"),),
    ),
    NodeDeclaration(
        name="SamplerEulerCFGpp",
        display_name="SamplerEulerCFG++",
        category="_for_testing",
        python_module=_ADVANCED,
        experimental=True,
        lower=_euler_cfg_pp,
        inputs=(choice("version", ("regular", "alternative")),),
        outputs=(OutputSpec("SAMPLER"),),
    ),
    _sampler("SamplerLMS", _of_family(_named("lms"), "order"), (whole("order", 4, 1, 100),)),
    _sampler(
        "SamplerDPMPP_3M_SDE",
        _of_family(_on_device("dpmpp_3m_sde"), "eta", "s_noise"),
        (_ETA, _S_NOISE, _DEVICE),
    ),
    _sampler(
        "SamplerDPMPP_2M_SDE",
        _of_family(_dpmpp_2m, "eta", "s_noise"),
        (choice("solver_type", ("midpoint", "heun")), _ETA, _S_NOISE, _DEVICE),
    ),
    _sampler(
        "SamplerDPMPP_SDE",
        _of_family(_on_device("dpmpp_sde"), "eta", "s_noise", "r"),
        (_ETA, _S_NOISE, _free("r", 0.5), _DEVICE),
    ),
    _sampler(
        "SamplerDPMPP_2S_Ancestral",
        _of_family(_named("dpmpp_2s_ancestral"), "eta", "s_noise"),
        (_ETA, _S_NOISE),
    ),
    _sampler(
        "SamplerDPMAdaptative",
        _of_family(_named("dpm_adaptive"), *(spec.name for spec in _ADAPTIVE)),
        _ADAPTIVE,
    ),
    _sampler(
        "SamplerER_SDE",
        _of_family(_named("er_sde"), "solver_type", "max_stage", "eta", "s_noise"),
        (
            choice("solver_type", ("ER-SDE", "Reverse-time SDE", "ODE")),
            whole("max_stage", 3, 1, 3),
            _ETA,
            _S_NOISE,
        ),
    ),
    _sampler(
        "SamplerSASolver",
        _sa_solver,
        (
            socket("model", "MODEL"),
            _free("eta", 1.0, 10.0),
            _share("sde_start_percent", 0.2),
            _share("sde_end_percent", 0.8),
            _S_NOISE,
            whole("predictor_order", 3, 1, 6),
            whole("corrector_order", 4, 0, 6),
            InputSpec("use_pece", "BOOLEAN"),
            InputSpec("simple_order_2", "BOOLEAN"),
        ),
    ),
    _sampler(
        "SamplerSEEDS2",
        _of_family(_named("seeds_2"), "solver_type", "eta", "s_noise", "r"),
        (choice("solver_type", ("phi_1", "phi_2")), _ETA, _S_NOISE, _free("r", 0.5, 1.0, 0.01)),
    ),
)
"""The declarations of this module, in the order of the node menu."""
