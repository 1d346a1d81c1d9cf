"""Over-sampling: more is asked for than is wanted, the first to finish are taken, and the long tail is cut.

The first to finish are, on average, shorter: a policy that is trained on the first only is moved toward short answers.
So the surplus should be a few percent, enough for the last stragglers.
"""

from __future__ import annotations


class Quota:
    """Which completions count: the first `n` to finish in each of the first `groups` groups to have `n`.

    Attributes:
        chosen: keys of the completions that count; complete once the quota is `full`.
    """

    def __init__(self, groups: int, n: int):
        self.groups, self.n = groups, n
        self.chosen: set[str] = set()
        self._filling: dict[int, list[str]] = {}
        self._filled: set[int] = set()

    @property
    def full(self) -> bool:
        return len(self._filled) == self.groups

    def filled(self, group: int) -> bool:
        """Return whether nothing more is wanted of this group."""
        return group in self._filled

    def take(self, group: int, key: str) -> bool:
        """Count a finished completion; return False when it is too late to be wanted."""
        if self.full or group in self._filled:
            return False
        self._filling.setdefault(group, []).append(key)
        if len(self._filling[group]) == self.n:
            self._filled.add(group)
            self.chosen.update(self._filling.pop(group))
        return True
