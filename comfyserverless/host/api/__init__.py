"""Answer `comfy_api`: node classes with a schema (V3), what they are described and called with, and helpers."""
