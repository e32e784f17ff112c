"""Model patches where they act: a handle's patches become ComfyUI's `model_options`, and these are obeyed.

Built-in patches and pickled callables of packs are put into the same dicts and called at the same points.
`subject` says what a handle's patches make of a model, `evaluation` calls them, `builtin` holds our own.
"""
