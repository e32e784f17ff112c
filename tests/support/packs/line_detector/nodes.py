import comfy.model_management
import comfy.utils
import folder_paths
import torch

from .network import LineNetwork


class LineDetector:
    """Draw the lines of pictures, one picture at a time, with a network that stays loaded."""

    def __init__(self):
        self.network = None
        self.loads = 0

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "image": ("IMAGE",),
                "weights": (folder_paths.get_filename_list("line_detectors"),),
                "resolution": ("INT", {"default": 64, "min": 16, "max": 2048, "step": 8}),
            }
        }

    RETURN_TYPES = ("IMAGE", "MASK", "INT")
    RETURN_NAMES = ("lines", "mask", "loads")
    FUNCTION = "detect"
    CATEGORY = "preprocessors/lines"

    def detect(self, image, weights, resolution):
        device = comfy.model_management.get_torch_device()
        if self.network is None:
            path = folder_paths.get_full_path_or_raise("line_detectors", weights)
            self.network = LineNetwork()
            self.network.load_state_dict(comfy.utils.load_torch_file(path, safe_load=True))
            self.network.to(device).eval()
            self.loads += 1
        bar = comfy.utils.ProgressBar(image.shape[0])
        lines = []
        for picture in image:
            pixels = picture[None, :, :, :3].movedim(-1, 1).to(device)
            pixels = comfy.utils.common_upscale(pixels, resolution, resolution, "bilinear", "disabled")
            with torch.no_grad():
                lines.append(self.network(pixels)[:, 0].to(comfy.model_management.intermediate_device()))
            bar.update(1)
        mask = torch.cat(lines)
        return mask[..., None].repeat(1, 1, 1, 3), mask, self.loads


NODE_CLASS_MAPPINGS = {"LineDetector": LineDetector}
NODE_DISPLAY_NAME_MAPPINGS = {"LineDetector": "Line detector"}
