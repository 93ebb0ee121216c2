"""Values of options, for argparse: what is wrong with one is said in a sentence."""

from __future__ import annotations

import argparse


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0.1 to 86400")
    return value
