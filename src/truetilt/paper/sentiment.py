"""Sentiment: reviews that are asked to be negative or positive, judged by a net that no guidance saw."""

from __future__ import annotations

from .text_grid import TextTask

TASK = TextTask(
    "sentiment",
    "Reviews of an asked sentiment",
    ("negative", "positive"),
    {
        "negative": "The generated text is of negative sentiment",
        "positive": "The generated text is of positive sentiment",
    },
)
