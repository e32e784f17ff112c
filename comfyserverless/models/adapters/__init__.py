"""T2I-Adapters: small networks that add features of a picture to a U-Net's encoder."""
