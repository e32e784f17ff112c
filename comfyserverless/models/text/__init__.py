"""Turn prompts into conditioning: weights in brackets, tokens, chunks, textual inversion, CLIP.

Never here: which file a node names. May import the rest of models' small modules and below.
"""
