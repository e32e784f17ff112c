"""Hold an examination: every question is drawn, read and marked."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from PIL import Image

from comfyserverless.training.evaluation.asking import Artist, question_graph
from comfyserverless.training.evaluation.judge import read_picture
from comfyserverless.training.evaluation.marks import mark
from comfyserverless.training.evaluation.questions import Question
from comfyserverless.training.evaluation.report import Answer


def examine(questions: Sequence[Question], url: str, checkpoint: str) -> list[Answer]:
    """Have a server draw all questions, and judge the pictures. Raises ConfigError, AskingError."""
    graphs = [question_graph(question, checkpoint) for question in questions]
    with closing(Artist(url).draw(graphs)) as pictures:
        return [_answer(question, png) for question, png in zip(questions, pictures, strict=True)]


def _answer(question: Question, png: bytes) -> Answer:
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    reading = read_picture(picture)
    return Answer(question, picture, reading, mark(question, reading))
