"""What learning a stream of images costs on a cluster.

Bytes and seconds by formula; where queues matter, ``scale_simulation.py`` simulates them.

Nodes take blocks of images as they become free. A node's encoders make features of them; its cores
decode, lift and sum them. Blocks are added in pairs on the node until their sum turns dense (a
*group*), and groups are added to the node's own sum. When all images are learned, the nodes' sums
are added in a binary tree, and the model is solved once. ``scale.py`` writes the page.

Where classes are *sharded*, which visvm does not do, a node keeps the class columns of its own
classes only: every image's fused features are sent to the node that has its class, and lifted there
once more. What is added in the tree is then the D x D matrix.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from visvm.head.memory import SessionSizes, chunk_rows
from visvm.head.scatter import THIN_SHARE

FLOAT, FUSED = 8, 4  # bytes of a number: in sums, in fused features
BLOCK = 4096  # images that a node takes at a time
FILE = 110_000  # bytes of an image file: an assumption
SPREAD = 0.1  # standard deviation of the logarithm of a block's time: an assumption
REPAIR = 600.0  # seconds until a node that failed is replaced: an assumption


@dataclass(frozen=True)
class Rates:
    """What one core does in a second: floating-point operations, except in the last two."""

    lift: float
    scatter: float  # the symmetric product that adds rows to the D x D matrix
    product: float
    cholesky: float
    triangular: float
    merge: float  # bytes of the dense sum that another one is added to
    decode: float  # image files


@dataclass(frozen=True)
class Stream:
    """Images to learn, shuffled or class by class; all classes are equally frequent."""

    name: str
    n_images: int
    n_classes: int
    shuffled: bool

    def classes_in(self, n_images: int, pieces: int = 1) -> int:
        """Return the classes to expect among so many images, taken in so many pieces."""
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
    """Count a thin sum: factor, of one row less than there are images, targets, class sums."""
    return FLOAT * ((n_images - 1) * (width + n_classes) + (width + 1) * n_classes)


def dense_bytes(width: int, n_classes: int, *, sent: bool = False) -> int:
    """Count a dense sum: matrix, cross moment and class sums.

    It is sent without the upper triangle of the matrix.
    """
    square = width * (width + 1) // 2 if sent else width**2
    return FLOAT * (square + (2 * width + 1) * n_classes)


def merge_peak_bytes(width: int, n_classes: int, n_added: int) -> int:
    """Count the peak while a dense sum of `n_added` classes is added to one of all `n_classes`.

    Two matrices; class sums and cross moment of both with all columns, and one result; those of the
    added sum as it came.
    """
    return FLOAT * (2 * width**2 + 5 * (width + 1) * n_classes + 2 * (width + 1) * n_added)


def solve_peak_bytes(width: int, n_classes: int, n_inputs: int = 384) -> int:
    """Count the peak of adding to a dense model and solving it, as visvm does before a session."""
    session = SessionSizes(1, 0, is_dense=True, n_classes=n_classes, n_inputs=n_inputs, width=width)
    return session.accumulate_bytes()


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
        """Count the class columns in the sum of so many images."""
        return 0 if self.sharded else self.stream.classes_in(n_images, pieces)

    def node_columns(self, n_nodes: int) -> int:
        """Count the class columns in the sum of one of so many nodes."""
        images = -(-self.stream.n_images // n_nodes)
        return self.columns(images, -(-images // BLOCK))

    def encode_seconds(self) -> float:
        """Time an image through the encoders of a node, or through its link if that is slower."""
        return max(1.0 / self.node.images_per_second, FILE / self.link)

    def core_seconds(self, n_nodes: int) -> dict[str, float]:
        """Time an image on one core, the encoder not counted.

        Class columns are products with one-hot targets, and every chunk of rows passes over all
        columns of its group.
        """
        chunk, lift = chunk_rows(self.width), 2 * self.n_inputs * self.width / self.rates.lift
        group = self.columns(self.group)
        columns = 2 * self.width * (group + self.columns(chunk)) / self.rates.product
        columns += 2 * FLOAT * self.width * group / chunk / self.rates.merge
        if self.sharded:
            columns = lift + 2 * FLOAT * self.width / self.rates.merge
        return {
            "decode": 1.0 / self.rates.decode,
            "lift": lift,
            "D x D sum": self.width**2 / self.rates.scatter,
            "class columns": columns,
            "adding groups": self.merge_seconds(self.node_columns(n_nodes)) / self.group,
        }

    def merge_seconds(self, n_columns: int) -> float:
        """Time adding a dense sum to one of so many columns: memory is the limit."""
        return dense_bytes(self.width, n_columns) / self.rates.merge

    def sum_seconds(self, n_nodes: int) -> float:
        """Time an image on all cores, the encoder not counted.

        Groups are added to the node's sum one after the other.
        """
        parts = self.core_seconds(n_nodes)
        return max(parts["adding groups"], sum(parts.values()) / self.node.cores)

    def solve_seconds(self, n_nodes: int) -> float:
        """Time the Cholesky factor and all class columns on one node.

        Sharded, each node gets the factor and solves its own columns.
        """
        shards = n_nodes if self.sharded else 1
        factor = self.width**3 / 3 / self.rates.cholesky
        columns = 2 * self.width**2 * (self.stream.n_classes / shards + 1) / self.rates.triangular
        sending = dense_bytes(self.width, 0, sent=True) / self.link if shards > 1 else 0.0
        return (factor + columns) / self.node.cores + sending

    def cholesky_seconds(self, n_nodes: int) -> float:
        """Time the factor of a matrix whose blocks lie on a square of nodes.

        Each gets D²/√P numbers from the others.
        """
        sending = FLOAT * self.width**2 / math.sqrt(n_nodes) / self.link if n_nodes > 1 else 0.0
        return self.width**3 / 3 / self.rates.cholesky / self.node.cores / n_nodes + sending

    def node_peak_bytes(self, n_nodes: int) -> int:
        """Count the peak of a node that makes one group while it adds another to its sum."""
        columns = self.columns(self.group)
        shard = -(-self.stream.n_classes // n_nodes) if self.sharded else 0
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
        """Count the peak of the node that solves, as visvm does; sharded, of every node."""
        classes = -(-self.stream.n_classes // (n_nodes if self.sharded else 1))
        solving = solve_peak_bytes(self.width, classes, self.n_inputs)
        return max(self.node_peak_bytes(n_nodes), solving)


def largest(fits: Callable[[int], bool]) -> int:
    """Find the largest whole number that fits, where every smaller one does."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def widest(n_classes: int, memory: float) -> int:
    """Find the largest D of so many classes that can be solved in so much memory."""
    return largest(lambda width: solve_peak_bytes(width, n_classes) <= memory)


def most_classes(width: int, memory: float) -> int:
    """Find the most classes of this D that can be solved in so much memory."""
    return largest(lambda n_classes: solve_peak_bytes(width, n_classes) <= memory)


@dataclass(frozen=True)
class Setup:
    """The clusters looked at."""

    rates: Rates
    cpu: Node
    gpu: Node
    link: float  # bytes a second
    nodes: list[int]

    def job(self, stream: Stream, node: Node | None = None) -> Job:
        """Put a stream on nodes, by default CPU nodes."""
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
