"""Texts, and an embedding of them that needs no model: how often each of a few words occurs."""

WORDS = ("apple", "pear", "plum", "car", "train", "ship", "rain", "snow")

TEXTS = (
    "an apple and a pear",
    "a plum and a plum",
    "the car and the train",
    "the ship in the rain",
    "snow and rain and snow",
)


def vector(text):
    """vector counts the words; the last place keeps it from being zero."""
    words = text.split()
    return [float(words.count(word)) for word in WORDS] + [0.1]


DIMENSIONS = len(WORDS) + 1
