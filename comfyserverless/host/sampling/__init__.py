"""Let packs sample: ComfyUI's samplers, guiders and schedules over evaluations on the workers."""
