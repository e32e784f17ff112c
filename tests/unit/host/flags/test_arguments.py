"""`comfy.cli_args` as packs read it."""

from __future__ import annotations

from pathlib import Path

from tests.support.pack_modules import module, pack_modules


def test_arguments_have_all_standard_names_at_their_defaults(tmp_path: Path) -> None:
    with pack_modules(tmp_path, port=8190):
        given = module("comfy.cli_args")
    assert given.args.preview_method is given.LatentPreviewMethod.NoPreviews
    assert (given.args.port, given.args.lowvram, given.args.output_directory) == (8190, False, None)
    assert given.args.force_fp16 is given.args.quick_test_for_ci is False


def test_arguments_that_the_server_was_started_with_are_told(tmp_path: Path) -> None:
    flags = {"preview_method": "latent2rgb", "disable_metadata": True, "cache_lru": 3}
    with pack_modules(tmp_path, flags=flags):
        given = module("comfy.cli_args")
    assert given.args.preview_method is given.LatentPreviewMethod.Latent2RGB
    assert given.args.disable_metadata
    assert given.args.cache_lru == 3
