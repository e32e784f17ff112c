"""ComfyUI's `cuda_malloc`: how memory is allocated is the workers' matter."""


def cuda_malloc_supported() -> bool:
    """Tell that nothing is changed here."""
    return False


def get_gpu_names() -> set[str]:
    """Return no names: the node host uses no GPU."""
    return set()
