"""Answer `comfy.model_management`: the devices of this process and what is on them."""
