"""Labels with "/" → levels: where it is unsure which owl, ``bird/owl`` is an answer.

Classes whose labels begin alike form a group. An image shows one class, so the probability of a
group is the sum of those of its classes, just as the sums that a model keeps of a group's images
are the sums of its classes', added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from visvm.head.products import Array
from visvm.model.labels import Label

SURE = 0.6
"""By default an answer goes down to the last level that is at least so probable."""


@dataclass(eq=False)
class _Node:
    """A class or a group: the places of its classes, and what is one level below it."""

    label: str
    number: int = 0
    places: list[int] = field(default_factory=list)
    below: dict[str, "_Node"] = field(default_factory=dict)


class Levels:
    """The groups among classes, and answers on the level that an image allows.

    Parameters
    ----------
    classes : sequence of str or int
        In the order of their probabilities.

    Attributes
    ----------
    groups : tuple of str

    Examples
    --------
    >>> levels = Levels(["bird/owl/barn owl", "bird/owl/tawny owl", "bird/wren", "cat"])
    >>> levels.groups
    ('bird', 'bird/owl')
    >>> levels.answers(np.array([[0.5, 0.25, 0.0, 0.25], [0.0, 0.125, 0.875, 0.0]]), sure=0.6)
    [('bird/owl', 0.75), ('bird/wren', 0.875)]
    """

    def __init__(self, classes: Sequence[Label]) -> None:
        self._root = _Node("")
        for place, label in enumerate(classes):
            self._add(str(label), place)
        self._nodes = self._simplified()
        self.groups: tuple[str, ...] = tuple(sorted(n.label for n in self._nodes if n.below))

    def _add(self, label: str, place: int) -> None:
        parts = label.split("/")
        if not all(part.strip() for part in parts):
            parts = [label]  # such as "and/", which is only a name
        node = self._root
        for n in range(1, len(parts) + 1):
            name = "/".join(parts[:n])
            node = node.below.setdefault(name, _Node(name))
            node.places.append(place)

    def _simplified(self) -> list[_Node]:
        """Return all nodes, numbered; what holds one class is that class, and no group."""
        found: list[_Node] = []
        left = [self._root]
        while left:
            node = left.pop()
            for name, child in node.below.items():
                while len(child.places) == 1 and child.below:
                    (child,) = child.below.values()
                node.below[name] = child
                child.number = len(found)
                found.append(child)
                left.append(child)
        return found

    def answers(self, probabilities: Array, sure: float) -> list[tuple[str, float]]:
        """Return the label of the level that each image allows, and its probability.

        There always is an answer on the top level: its likeliest class or group. From there on,
        the likeliest below is taken as long as it is probable enough.

        Parameters
        ----------
        probabilities : array of shape (n, C)
        sure : float
            How probable an answer below the top level must be.
        """
        each = [probabilities[:, node.places].sum(axis=1) for node in self._nodes]
        return [self._answer(row, sure) for row in np.stack(each, axis=1)]

    def _answer(self, probable: Array, sure: float) -> tuple[str, float]:
        node, found = self._root, 1.0
        while node.below:
            best = max(node.below.values(), key=lambda child: float(probable[child.number]))
            if node is not self._root and probable[best.number] < sure:
                break
            node, found = best, float(probable[best.number])
        return node.label, min(found, 1.0)
