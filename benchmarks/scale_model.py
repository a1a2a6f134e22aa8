"""What learning a stream of images costs on a cluster: bytes and seconds by formula, and a simulation where queues matter.

Nodes take blocks of images as they become free. A node's encoders make features of them; its cores
decode, lift and sum them. Blocks are added in pairs on the node until their sum turns dense (a
*group*), and groups are added to the node's own sum. When all images are learned, the nodes' sums
are added in a binary tree, and the model is solved once. ``scale.py`` writes the page.

Where classes are *sharded*, which visvm does not do, a node keeps the class columns of its own
classes only: every image's fused features are sent to the node that has its class, and lifted there
once more. What is added in the tree is then the D x D matrix.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from visvm.head.memory import SessionSizes, chunk_rows
from visvm.head.scatter import THIN_SHARE

FLOAT, FUSED = 8, 4  # bytes of a number: in sums, in fused features
BLOCK = 4096  # images that a node takes at a time
FILE = 110_000  # bytes of an image file: an assumption
SPREAD = 0.1  # standard deviation of the logarithm of a block's time: an assumption
REPAIR = 600.0  # seconds until a node that failed is replaced: an assumption


@dataclass(frozen=True)
class Rates:
    """What one core does in a second: floating-point operations, but for the last two."""

    lift: float
    scatter: float  # the symmetric product that adds rows to the D x D matrix
    product: float
    cholesky: float
    triangular: float
    merge: float  # bytes of the dense sum that another one is added to
    decode: float  # image files


@dataclass(frozen=True)
class Stream:
    """Images to learn, shuffled, or class by class as folders are listed. All classes are equally frequent."""

    name: str
    n_images: int
    n_classes: int
    shuffled: bool

    def classes_in(self, n_images: int, pieces: int = 1) -> int:
        """Classes to be expected among so many images, taken from the stream in so many pieces."""
        if self.shuffled:
            return round(-self.n_classes * math.expm1(n_images * math.log1p(-1.0 / self.n_classes)))
        return min(self.n_classes, math.ceil(n_images * self.n_classes / self.n_images) + pieces)


@dataclass(frozen=True)
class Node:
    """A kind of node, whose encoders make so many images a second together."""

    name: str
    cores: int
    memory: float
    images_per_second: float
    gpu: bool  # where there is none, the encoders take the cores' time


FOLDERS = Stream("ImageNet-21k", 14_000_000, 21_841, shuffled=False)
MIXED = replace(FOLDERS, name="ImageNet-21k, shuffled", shuffled=True)
WEB = Stream("LAION-400M", 400_000_000, 100_000, shuffled=True)


# Bytes of sums, as visvm.head.statistics has them


def thin_bytes(n_images: int, width: int, n_classes: int) -> int:
    """A thin sum: factor, targets and class sums. The factor has one row less than there are images."""
    return FLOAT * ((n_images - 1) * (width + n_classes) + (width + 1) * n_classes)


def dense_bytes(width: int, n_classes: int, *, sent: bool = False) -> int:
    """A dense sum, in memory or as it is sent, without the upper triangle: matrix, cross moment and class sums."""
    square = width * (width + 1) // 2 if sent else width**2
    return FLOAT * (square + (2 * width + 1) * n_classes)


def merge_peak_bytes(width: int, n_classes: int, n_added: int) -> int:
    """Peak while a dense sum of `n_added` classes is added to one of all `n_classes`.

    Two matrices; class sums and cross moment of both with all columns, and one result; those of the
    added sum as it came.
    """
    return FLOAT * (2 * width**2 + 5 * (width + 1) * n_classes + 2 * (width + 1) * n_added)


def solve_peak_bytes(width: int, n_classes: int, n_inputs: int = 384) -> int:
    """Peak of adding to a dense model and solving it, as visvm itself counts before a session."""
    return SessionSizes(
        1, 0, is_dense=True, n_classes=n_classes, n_inputs=n_inputs, width=width
    ).accumulate_bytes()


# Seconds


@dataclass(frozen=True)
class Job:
    """A stream learned on nodes of one kind."""

    stream: Stream
    node: Node
    rates: Rates
    link: float  # bytes a second into a node
    width: int = 15_000  # D
    n_inputs: int = 384
    sharded: bool = False

    @property
    def group(self) -> int:
        """Images in a sum when it turns dense."""
        return int(BLOCK * 2 ** max(0, math.floor(math.log2(THIN_SHARE * self.width / BLOCK)) + 1))

    def columns(self, n_images: int, pieces: int = 1) -> int:
        """Class columns in the sum of so many images."""
        return 0 if self.sharded else self.stream.classes_in(n_images, pieces)

    def node_columns(self, n_nodes: int) -> int:
        """Class columns in the sum of one of so many nodes."""
        images = -(-self.stream.n_images // n_nodes)
        return self.columns(images, -(-images // BLOCK))

    def encode_seconds(self) -> float:
        """An image through the encoders of a node, or through its link where that is slower."""
        return max(1.0 / self.node.images_per_second, FILE / self.link)

    def core_seconds(self, n_nodes: int) -> dict[str, float]:
        """What an image takes of one core beside the encoder.

        Class columns are products with one-hot targets, and every chunk of rows passes over all
        columns of its group.
        """
        chunk, lift = chunk_rows(self.width), 2 * self.n_inputs * self.width / self.rates.lift
        columns = (
            2 * self.width * (self.columns(self.group) + self.columns(chunk)) / self.rates.product
        )
        columns += 2 * FLOAT * self.width * self.columns(self.group) / chunk / self.rates.merge
        return {
            "decode": 1.0 / self.rates.decode,
            "lift": lift,
            "D x D sum": self.width**2 / self.rates.scatter,
            "class columns": lift + 2 * FLOAT * self.width / self.rates.merge
            if self.sharded
            else columns,
            "adding groups": self.merge_seconds(self.node_columns(n_nodes)) / self.group,
        }

    def merge_seconds(self, n_columns: int) -> float:
        """Adding a dense sum to one of so many class columns, on one core: memory is the limit, not arithmetic."""
        return dense_bytes(self.width, n_columns) / self.rates.merge

    def sum_seconds(self, n_nodes: int) -> float:
        """What an image takes of all cores beside the encoder; groups are added to the node's sum one after the other."""
        parts = self.core_seconds(n_nodes)
        return max(parts["adding groups"], sum(parts.values()) / self.node.cores)

    def solve_seconds(self, n_nodes: int) -> float:
        """The Cholesky factor on one node, and all class columns there; sharded, each on its own node, which gets the factor."""
        shards = n_nodes if self.sharded else 1
        factor = self.width**3 / 3 / self.rates.cholesky
        columns = 2 * self.width**2 * (self.stream.n_classes / shards + 1) / self.rates.triangular
        sending = dense_bytes(self.width, 0, sent=True) / self.link if shards > 1 else 0.0
        return (factor + columns) / self.node.cores + sending

    def cholesky_seconds(self, n_nodes: int) -> float:
        """The factor of a matrix whose blocks lie on a square of nodes: each gets D²/√P numbers from the others."""
        sending = FLOAT * self.width**2 / math.sqrt(n_nodes) / self.link if n_nodes > 1 else 0.0
        return self.width**3 / 3 / self.rates.cholesky / self.node.cores / n_nodes + sending

    def node_peak_bytes(self, n_nodes: int) -> int:
        """Peak of a node while it learns: one group in the making while another is added to the node's sum."""
        columns, shard = (
            self.columns(self.group),
            -(-self.stream.n_classes // n_nodes) if self.sharded else 0,
        )
        making = SessionSizes(
            self.group,
            0,
            is_dense=False,
            n_classes=columns,
            n_inputs=self.n_inputs,
            width=self.width,
        )
        merging = merge_peak_bytes(self.width, self.node_columns(n_nodes), columns)
        return merging + making.accumulate_bytes() + FLOAT * (2 * self.width + 1) * shard

    def driver_peak_bytes(self, n_nodes: int) -> int:
        """Peak of the node that solves, as visvm itself counts before a session; sharded, of every node."""
        shards = n_nodes if self.sharded else 1
        return max(
            self.node_peak_bytes(n_nodes),
            solve_peak_bytes(self.width, -(-self.stream.n_classes // shards), self.n_inputs),
        )


def largest(fits: Callable[[int], bool]) -> int:
    """The largest whole number that fits, where every smaller one does."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def widest(n_classes: int, memory: float) -> int:
    """The largest D of so many classes that can be solved in so much memory."""
    return largest(lambda width: solve_peak_bytes(width, n_classes) <= memory)


def most_classes(width: int, memory: float) -> int:
    """The most classes of this D that can be solved in so much memory."""
    return largest(lambda n_classes: solve_peak_bytes(width, n_classes) <= memory)


# Simulation


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
    generator = np.random.default_rng(seed)
    encode, reduce = job.encode_seconds(), job.sum_seconds(n_nodes)
    left, redone, idle = job.stream.n_images, 0, set[int]()
    summed = [0.0] * n_nodes  # when the cores of a node are free
    # when each block was summed, and its images
    done = [list[tuple[float, int]]() for _ in range(n_nodes)]
    queue = [(0.0, node) for node in range(n_nodes)] + ([] if failure is None else [(failure, -1)])
    heapq.heapify(queue)
    while queue:
        now, node = heapq.heappop(queue)
        if node < 0:
            saved = now - math.fmod(now, saved_every) if saved_every < math.inf else 0.0
            redone = sum(images for end, images in done[0] if end > saved)
            done[0] = [block for block in done[0] if block[0] <= saved]
            left, summed[0] = left + redone, now + REPAIR
            waiting = [each for each in queue if each[1] != 0] + [
                (now, other) for other in idle - {0}
            ]
            queue, idle = [*waiting, (now + REPAIR, 0)], set()
            heapq.heapify(queue)
        elif not left:
            idle.add(node)
        else:
            images = min(BLOCK, left)
            pace = math.exp(spread * generator.standard_normal() - spread**2 / 2) * (
                2 if n_nodes - node <= slow_nodes else 1
            )
            begin = max(now + images * encode * pace, summed[node])
            left, summed[node] = left - images, begin + images * reduce * pace
            done[node].append((summed[node], images))
            # on a GPU, one block may wait for the cores
            heapq.heappush(queue, (begin if job.node.gpu else summed[node], node))
    parts = [
        Part(max((end for end, _ in each), default=0.0), sum(n for _, n in each), len(each))
        for each in done
    ]
    levels = add_in_tree(job, parts)
    sent = sum(_sent(job, right) for level in levels[:-1] for right in level[1::2])
    if job.sharded:
        sent += job.stream.n_images * FUSED * job.n_inputs * (n_nodes - 1) // n_nodes
    return Outcome(max(part.ready for part in parts), levels[-1][0].ready, sent, redone, parts)


def add_in_tree(job: Job, parts: list[Part]) -> list[list[Part]]:
    """The levels of the tree in which neighbours are added in pairs, from the nodes' sums to the sum of all."""
    levels = [parts]
    while len(parts) > 1:
        parts = [_add(job, *parts[place : place + 2]) for place in range(0, len(parts), 2)]
        levels.append(parts)
    return levels


def careless_bytes(job: Job, n_nodes: int) -> float:
    """Bytes between nodes if blocks are added in a tree that does not ask which node they are on."""
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


@dataclass(frozen=True)
class Setup:
    """The clusters looked at."""

    rates: Rates
    cpu: Node
    gpu: Node
    link: float  # bytes a second
    nodes: list[int]

    def job(self, stream: Stream, node: Node | None = None) -> Job:
        """A stream on CPU nodes, if no others are given."""
        return Job(stream, node or self.cpu, self.rates, self.link)

    @property
    def jobs(self) -> list[Job]:
        """Both streams on both kinds of nodes."""
        return [
            self.job(stream, node) for node in (self.cpu, self.gpu) for stream in (FOLDERS, WEB)
        ]

    @property
    def several(self) -> list[int]:
        """Numbers of nodes above one."""
        return [n for n in self.nodes if n > 1]
