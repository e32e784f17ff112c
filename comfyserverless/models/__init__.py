"""Turn files into modules: family detection, key conversion, text encoders, LoRA, ControlNet, VAE.

Never here: queue, HTTP. May import dataplane, sampling and below.
"""
