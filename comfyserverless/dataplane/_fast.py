"""Pick the native parts of the data plane where they were built, else their Python twins."""

from __future__ import annotations

from comfyserverless.dataplane import _python

try:
    from comfyserverless import _native
except ImportError:
    IS_NATIVE = False
    BuddyAllocator = _python.BuddyAllocator
    copy = _python.copy
    load_flag = _python.load_flag
    publish_flag = _python.publish_flag
    wait_flag = _python.wait_flag
else:
    IS_NATIVE = True
    BuddyAllocator = _native.BuddyAllocator  # type: ignore[misc, assignment]
    copy = _native.copy
    load_flag = _native.load_flag
    publish_flag = _native.publish_flag
    wait_flag = _native.wait_flag

__all__ = ["IS_NATIVE", "BuddyAllocator", "copy", "load_flag", "publish_flag", "wait_flag"]
