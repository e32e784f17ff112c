"""Turn workflows that the page saved into prompts: reading, subgraphs, widgets, links.

Pure: a document and the answer of `/object_info` in, a prompt out. Never here: tensors, HTTP, files.
"""
