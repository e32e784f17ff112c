"""Serve ComfyUI workflows for many tenants as DAGs of model functions.

Importing the package, or any control-side room, loads neither torch nor numpy.
"""

__version__ = "0.1.0"
