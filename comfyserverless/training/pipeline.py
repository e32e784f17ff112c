"""Run the stages one after the other, in one process of the crew, and write the files."""

from __future__ import annotations

import copy
import signal
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from comfyserverless.core.errors import ConfigError
from comfyserverless.demo.places import DEMO_CHECKPOINT, DEMO_CONTROLNET, DEMO_LORA
from comfyserverless.training.crew import Crew, join, leave
from comfyserverless.training.export import save_checkpoint, save_controlnet, save_lora, save_word
from comfyserverless.training.loop import Stage, load_finished, run_stage
from comfyserverless.training.networks.slim_autoencoder import SlimAutoencoder
from comfyserverless.training.pools import make_pool, make_pools
from comfyserverless.training.recipe import SIZES_PX, Recipe
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.world import draw
from comfyserverless.training.stages.autoencoder import AutoencoderStage
from comfyserverless.training.stages.control import ControlStage
from comfyserverless.training.stages.denoiser import DenoiserStage, Drawer
from comfyserverless.training.stages.lora import LoraStage, draw_outlined
from comfyserverless.training.stages.reader import ReaderStage
from comfyserverless.training.stages.word import WORD, WordStage

ENDINGS = (signal.SIGINT, signal.SIGTERM)
"""What ends a training; blocked while its processes start."""


@dataclass(frozen=True)
class Job:
    """A training: numbers, folders, seed. What `folder` holds from an earlier call is not done again."""

    recipe: Recipe
    folder: Path
    out: Path
    seed: int


def train_in_crew(rank: int, size: int, job: Job, meeting: Path) -> None:
    """Take part in a training as process `rank` of `size`.

    What the user has to correct is left as text in the file `complaint_file(meeting)` before it is raised.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops one that has waited: the first process ends us then
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    crew = join(rank, size, meeting)
    try:
        _Training(job, crew).run()
    except (ConfigError, OSError) as exc:
        complaint_file(meeting).write_text(str(exc))
        raise
    finally:
        leave(crew)


def complaint_file(meeting: Path) -> Path:
    """Return the file that holds why a process ended early."""
    return meeting.with_name("complaint")


class _Training:
    """The stages of one job; networks are made when a stage needs them."""

    def __init__(self, job: Job, crew: Crew) -> None:
        self._job, self._crew = job, crew

    def run(self) -> None:
        checkpoint = self._job.out / "checkpoints" / DEMO_CHECKPOINT
        autoencoder, drawer = self._autoencoder, self._drawer
        if self._crew.is_first:
            save_checkpoint(drawer, autoencoder, checkpoint)
        self._train_lora()
        self._train_control()
        self._train_word()

    def _rng(self, stage: int) -> np.random.Generator:
        return np.random.default_rng((self._job.seed, stage, self._crew.rank))

    def _learn(self, stage: Stage) -> None:
        run_stage(stage, self._crew, self._job.folder, self._job.seed)

    @cached_property
    def _autoencoder(self) -> SlimAutoencoder:
        recipe, rng = self._job.recipe, self._rng(1)
        torch.manual_seed(self._job.seed)
        finished = SlimAutoencoder()
        if load_finished(finished, AutoencoderStage.name, self._job.folder):
            return finished
        pictures = [draw(random_scene(rng), rng) for _ in range(recipe.pictures)]
        stage = AutoencoderStage(recipe.autoencoder, pictures, recipe.autoencoder_batch)
        self._learn(stage)
        return stage.module

    @cached_property
    def _drawer(self) -> Drawer:
        recipe = self._job.recipe
        torch.manual_seed(self._job.seed + 1)
        finished = Drawer()
        if load_finished(finished, DenoiserStage.name, self._job.folder):
            return finished
        reader = ReaderStage(recipe.reader, self._rng(2), recipe.captions, recipe.reader_batch)
        self._learn(reader)
        pools = make_pools((self._job.seed, 3, self._crew.rank), recipe.examples)
        stage = DenoiserStage(recipe.denoiser, pools, SIZES_PX, recipe.denoiser_batch)
        stage.module.text.load_state_dict(reader.module.text.state_dict())
        self._learn(stage)
        return stage.module

    def _train_lora(self) -> None:
        recipe = self._job.recipe
        torch.manual_seed(self._job.seed + 2)
        pool = make_pool(self._rng(4), (128, 128), recipe.style_examples, draw_outlined)
        stage = LoraStage(recipe.lora, copy.deepcopy(self._drawer), pool, recipe.small_batch)
        self._learn(stage)
        if self._crew.is_first:
            save_lora(stage.pairs(), self._job.out / "loras" / DEMO_LORA)

    def _train_control(self) -> None:
        recipe, rng = self._job.recipe, self._rng(5)
        torch.manual_seed(self._job.seed + 3)
        pools = {
            size: make_pool(rng, size, count, keeps_pictures=True)
            for size, count in recipe.control_examples.items()
        }
        stage = ControlStage(recipe.control, self._drawer, pools, recipe.small_batch)
        self._learn(stage)
        if self._crew.is_first:
            save_controlnet(stage.module, self._job.out / "controlnet" / DEMO_CONTROLNET)

    def _train_word(self) -> None:
        recipe = self._job.recipe
        torch.manual_seed(self._job.seed + 4)
        stage = WordStage(recipe.word, self._drawer, self._rng(6), recipe.small_batch * 10, recipe.small_batch)
        self._learn(stage)
        if self._crew.is_first:
            save_word(stage.module.vectors, self._job.out / "embeddings" / f"{WORD}.safetensors")
