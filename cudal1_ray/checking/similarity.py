"""Which known candidates change their reference in the way this one does: TF-IDF over shingles of tokens.

Two candidates for one problem share most of their text with the reference, and so with each other, whatever they do.
What is compared here is therefore the difference to the reference: the shingles that a candidate adds ("+") and
those that it drops ("-"). Without a reference all shingles count as added.

Weights are those of the vector space model with sublinear term frequency, (1 + ln tf) (1 + ln((1 + N) / (1 + df))),
compared by cosine (Manning, Raghavan, Schütze, "Introduction to Information Retrieval", chapter 6).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from cudal1_ray.source.anonymous import tokens, without_inputs

# Longest run of tokens that makes one feature.
SHINGLE = 3
# The one feature of a candidate that changes nothing.
NOTHING = "nothing"


def shingles(words: Sequence[str], longest: int = SHINGLE) -> Counter[str]:
    """Count all runs of 1 to `longest` neighbouring tokens."""
    return Counter(
        " ".join(words[at : at + size]) for size in range(1, longest + 1) for at in range(len(words) - size + 1)
    )


@lru_cache(maxsize=1024)  # each checker reads all cases, of which 465 are shipped
def features(code: str, reference: str = "") -> Counter[str]:
    """Return what the code adds to its reference and leaves out of the reference's model, as signed shingles."""
    ours, (theirs, model) = shingles(tokens(code)), _of_reference(reference)
    counts = Counter({f"+{shingle}": count for shingle, count in ours.items() if shingle not in theirs})
    counts.update({f"-{shingle}": count for shingle, count in model.items() if shingle not in ours})
    return counts or Counter({NOTHING: 1})


@lru_cache(maxsize=512)
def _of_reference(reference: str) -> tuple[Counter[str], Counter[str]]:
    """Return the shingles of a reference, and those of its model alone: no candidate has to repeat get_inputs()."""
    return shingles(tokens(reference)), shingles(tokens(without_inputs(reference)))


class SimilarityIndex:
    """Features of any number of documents, each known by its number; answers which are nearest to others."""

    def __init__(self) -> None:
        self._documents: list[Counter[str]] = []
        self._df: Counter[str] = Counter()
        self._postings: dict[str, list[tuple[int, float]]] | None = None

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, document: Counter[str]) -> int:
        """Add a document and return its number, counted from 0."""
        self._documents.append(document)
        self._df.update(document.keys())
        self._postings = None  # every weight depends on the number of documents
        return len(self._documents) - 1

    def nearest(
        self, query: Counter[str], count: int, allowed: Callable[[int], bool] = lambda _: True
    ) -> list[tuple[int, float]]:
        """Return up to `count` allowed documents with their cosine to the query if above 0, the nearest first."""
        if self._postings is None:
            self._build()
        assert self._postings is not None
        scores: dict[int, float] = {}
        for feature, weight in self._unit(query).items():
            for number, theirs in self._postings.get(feature, ()):
                scores[number] = scores.get(number, 0.0) + weight * theirs
        matches = [(number, min(score, 1.0)) for number, score in scores.items() if allowed(number)]
        return sorted(matches, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _build(self) -> None:
        self._postings = {}
        for number, document in enumerate(self._documents):
            for feature, weight in self._unit(document).items():
                self._postings.setdefault(feature, []).append((number, weight))

    def _unit(self, document: Counter[str]) -> dict[str, float]:
        total = len(self._documents)
        weights = {
            feature: (1.0 + math.log(count)) * (1.0 + math.log((1 + total) / (1 + self._df[feature])))
            for feature, count in document.items()
        }
        norm = math.sqrt(sum(weight * weight for weight in weights.values()))
        return {feature: weight / norm for feature, weight in weights.items()}
