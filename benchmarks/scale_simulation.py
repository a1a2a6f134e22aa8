"""Nodes that learn a stream block by block, and add their sums: where queues matter."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, repeat
from operator import itemgetter

import numpy as np
from scale_model import BLOCK, FUSED, REPAIR, Job, dense_bytes, thin_bytes

from visvm.head.scatter import THIN_SHARE


@dataclass(frozen=True)
class Part:
    """The sum of some images, when it is ready, and of how many pieces of the stream it is."""

    ready: float
    n_images: int
    pieces: int


@dataclass(frozen=True)
class Outcome:
    """What came of a simulated run."""

    learned: float  # when the last node had its sum
    added: float  # when the sums of all nodes were one
    sent: int  # bytes between nodes for that
    redone: int  # images learned again
    parts: list[Part] = field(repr=False)  # by node


@cache
def simulate(
    job: Job,
    n_nodes: int,
    *,
    spread: float = 0.0,
    slow_nodes: int = 0,
    failure: float | None = None,
    saved_every: float = math.inf,
    seed: int = 0,
) -> Outcome:
    """Learn a stream on so many nodes.

    Parameters
    ----------
    job : Job
    n_nodes : int
    spread : float
        Standard deviation of the logarithm of a block's time.
    slow_nodes : int
        So many nodes work at half the speed.
    failure : float, optional
        When the first node fails: what it has summed since it last saved its sum has to be learned
        again.
    saved_every : float
        Seconds from one saving to the next.
    seed : int
    """
    cluster = _Cluster(job, n_nodes, spread, slow_nodes, np.random.default_rng(seed))
    cluster.run(failure, saved_every)
    parts = [
        Part(each[-1][0] if each else 0.0, sum(map(itemgetter(1), each)), len(each))
        for each in cluster.done
    ]
    levels = add_in_tree(job, parts)
    sent = sum(_sent(job, right) for level in levels[:-1] for right in level[1::2])
    if job.sharded:
        sent += job.stream.n_images * FUSED * job.n_inputs * (n_nodes - 1) // n_nodes
    learned, added = max(part.ready for part in parts), levels[-1][0].ready
    return Outcome(learned, added, sent, cluster.redone, parts)


class _Cluster:
    """Nodes that take blocks as they become free."""

    def __init__(
        self, job: Job, n_nodes: int, spread: float, slow_nodes: int, generator: np.random.Generator
    ) -> None:
        self.job, self.n_nodes, self.slow_nodes = job, n_nodes, slow_nodes
        self.paces = _paces(spread, generator) if spread else repeat(1.0)
        self.encode, self.reduce = job.encode_seconds(), job.sum_seconds(n_nodes)
        self.left, self.redone, self.idle = job.stream.n_images, 0, set[int]()
        self.summed = [0.0] * n_nodes  # when the cores of a node are free
        # when each block was summed, and its images
        self.done = [list[tuple[float, int]]() for _ in range(n_nodes)]
        self.queue = [(0.0, node) for node in range(n_nodes)]

    def run(self, failure: float | None, saved_every: float) -> None:
        """Learn until no image is left."""
        if failure is not None:
            self.queue.append((failure, -1))
        heapq.heapify(self.queue)
        while self.queue:
            self._learn()
            now, node = heapq.heappop(self.queue)
            if node < 0:
                saved = now - math.fmod(now, saved_every) if saved_every < math.inf else 0.0
                self._fail(now, saved)
            else:
                self.idle.add(node)

    def _fail(self, now: float, saved: float) -> None:
        """Lose what the first node has summed since it saved, and wake the nodes that are idle."""
        self.redone = sum(images for end, images in self.done[0] if end > saved)
        self.done[0] = [block for block in self.done[0] if block[0] <= saved]
        self.left, self.summed[0] = self.left + self.redone, now + REPAIR
        others = [each for each in self.queue if each[1] != 0]
        others += [(now, other) for other in self.idle - {0}]
        self.queue, self.idle = [*others, (now + REPAIR, 0)], set()
        heapq.heapify(self.queue)

    def _learn(self) -> None:
        """Let whichever node is free first take a block, until one fails or no image is left."""
        queue, summed, done, left = self.queue, self.summed, self.done, self.left
        first_slow, gpu = self.n_nodes - self.slow_nodes, self.job.node.gpu
        images, encode, reduce = BLOCK, BLOCK * self.encode, BLOCK * self.reduce
        while left and queue[0][1] >= 0:
            now, node = queue[0]
            if left < BLOCK:
                images, encode, reduce = left, left * self.encode, left * self.reduce
            pace = next(self.paces) * (2 if node >= first_slow else 1)
            begin = max(now + encode * pace, summed[node])
            left, summed[node] = left - images, begin + reduce * pace
            done[node].append((summed[node], images))
            # on a GPU, one block may wait for the cores
            heapq.heapreplace(queue, (begin if gpu else summed[node], node))
        self.left = left


def _paces(spread: float, generator: np.random.Generator) -> Iterator[float]:
    """Draw how long blocks take, in proportion to their mean."""
    drawn = (generator.standard_normal(BLOCK) for _ in repeat(None))
    return chain.from_iterable(np.exp(spread * each - spread**2 / 2).tolist() for each in drawn)


def add_in_tree(job: Job, parts: list[Part]) -> list[list[Part]]:
    """Return the levels of the tree in which neighbours are added in pairs, leaves first."""
    levels = [parts]
    while len(parts) > 1:
        parts = [_add(job, *parts[place : place + 2]) for place in range(0, len(parts), 2)]
        levels.append(parts)
    return levels


def careless_bytes(job: Job, n_nodes: int) -> float:
    """Count bytes between nodes if blocks are added in a tree that ignores where they are."""
    total, n_images = 0.0, BLOCK
    while n_images < job.stream.n_images:
        columns = job.columns(n_images)
        thin = n_images <= THIN_SHARE * job.width
        each = (
            thin_bytes(n_images, job.width, columns)
            if thin
            else dense_bytes(job.width, columns, sent=True)
        )
        total += job.stream.n_images / (2 * n_images) * each * (1 - 1 / n_nodes)
        n_images *= 2
    return total


def _add(job: Job, left: Part, right: Part | None = None) -> Part:
    if right is None:
        return left
    n_images, pieces = left.n_images + right.n_images, left.pieces + right.pieces
    adding = job.merge_seconds(job.columns(n_images, pieces))
    return Part(
        max(left.ready, right.ready) + _sent(job, right) / job.link + adding, n_images, pieces
    )


def _sent(job: Job, part: Part) -> int:
    return dense_bytes(job.width, job.columns(part.n_images, part.pieces), sent=True)
