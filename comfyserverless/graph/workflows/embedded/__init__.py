"""Find the texts `prompt` and `workflow` that ComfyUI leaves in the files it makes.

Pure: bytes in, texts out, whatever the bytes are. Never here: files, decoding of pictures.
"""
