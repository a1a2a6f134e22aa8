"""Two attacks that compute features of single photos from sums.

What an attacker has: class sums, the scatter in either form, and R, which its seed gives to
everybody. What is wanted: the fused feature u of a photo, φ = relu(uR).

**The hull.** N photos span the affine space {mean + Fᵀc}. In the coordinates c they are a regular
simplex, whatever rotation F has: cᵢ·cᵢ = 1 - 1/N and cᵢ·cⱼ = -1/N. Each φ has about D/2 exact
zeros, so it is a vertex of the part of the hull where nothing is negative, and a linear program
finds vertices. Descent goes on where that gets slow, from a hundred photos or so: it looks for u
whose relu(uR) lies in the hull. Every photo that is found takes one dimension off the hull, so the
next one is easier.

**A class sum.** Σ relu(uᵢR) over k photos is a network of one hidden layer with k neurons, whose
outputs for D random inputs, the columns of R, are known. Its weights are the features.
"""

import time
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

from visvm.head.scatter import ThinScatter
from visvm.head.statistics import Statistics

Array = np.ndarray

_EXACT = 1e-18  # relative squared distance: below it, a candidate is a photo
_SPREADS = (0.3, 1.0, 2.0)  # of the starts, in units of the feature that they are drawn about


@dataclass
class Hull:
    """The affine space that photos span, without those found: mean + basis·q, normals·q = level.

    Attributes
    ----------
    mean : array of shape (D,)
    basis : array of shape (D, r)
        Orthonormal.
    triangle : array of shape (r, r)
        The scatter is basis·triangle·triangleᵀ·basisᵀ.
    n_samples : float
        N.
    normals, level : arrays of shape (r, k) and (k,)
        Orthonormal; of the k photos that were taken out.
    """

    mean: Array
    basis: Array
    triangle: Array
    n_samples: float
    normals: Array = field(init=False)
    level: Array = field(init=False)

    def __post_init__(self) -> None:
        self.normals, self.level = np.empty((self.basis.shape[1], 0)), np.empty(0)

    @property
    def n_dimensions(self) -> int:
        """Dimensions that are left."""
        return self.basis.shape[1] - self.normals.shape[1]

    def distance(self, lifted: Array) -> Array:
        """Return what leads from the hull to φ, (D,)."""
        outside = lifted - self.mean
        inside = self.basis.T @ outside
        off = self.normals @ (self.normals.T @ inside - self.level)
        return outside - self.basis @ (inside - off)

    def curvature(self, slopes: Array) -> Array:
        """Return JᵀJ, (d, d), where J is the distance's derivative and `slopes`, (D, d), φ's."""
        inside = self.basis.T @ slopes
        along = self.normals.T @ inside
        return slopes.T @ slopes - inside.T @ inside + along.T @ along

    def dual(self, lifted: Array) -> Array:
        """Return the scatter's inverse times φ - mean, (r,)."""
        inside = self.basis.T @ (lifted - self.mean)
        return np.linalg.solve(self.triangle.T, np.linalg.solve(self.triangle, inside))

    def take_out(self, lifted: Array) -> None:
        """Leave only points that have the simplex's angle with this photo."""
        normal, level = self.dual(lifted), -1.0 / self.n_samples
        for _ in range(2):  # twice is enough
            along = self.normals.T @ normal
            normal, level = normal - self.normals @ along, level - along @ self.level
        length = np.linalg.norm(normal)
        self.normals = np.column_stack([self.normals, normal / length])
        self.level = np.append(self.level, level / length)


@dataclass(frozen=True)
class Found:
    """What an attack has recovered: features, (k, d), in how many tries and CPU seconds."""

    features: Array
    n_tries: int
    seconds: float

    def n_right(self, fused: Array) -> int:
        """Return how many of the true features, (n, d), are among them to six digits."""
        if not len(self.features):
            return 0
        errors = [np.abs(self.features - each).max(axis=1).min() for each in fused]
        return int((np.array(errors) < 1e-6 * np.abs(fused).max()).sum())


@dataclass(frozen=True)
class Seen:
    """What the sums of n photos show: n, their hull, class sums, (D + 1, C), and cross moment.

    The cross moment, (D, C), is that of features and one-hot targets about their means; `shares`,
    (C,), are the means of the targets.
    """

    n_photos: int
    hull: Hull
    class_sums: Array
    cross: Array
    shares: Array

    @classmethod
    def of(cls, sums: Statistics) -> "Seen":
        """Look at all photos in the sums, thin or dense."""
        if isinstance(sums.scatter, ThinScatter):
            basis, triangle = np.linalg.qr(np.concatenate(sums.scatter.blocks).T)
        else:
            values, vectors = np.linalg.eigh(sums.scatter.to_matrix())
            real = values > 1e-9 * values[-1]
            basis, triangle = vectors[:, real], np.diag(np.sqrt(values[real]))
        cross = sums.class_sums[:-1] - sums.mean[:, None] * sums.class_counts
        hull = Hull(sums.mean, basis, triangle, sums.n_samples)
        shares = sums.class_counts / sums.n_samples
        return cls(round(sums.n_samples), hull, sums.class_sums, cross, shares)

    @classmethod
    def of_last_block(cls, sums: Statistics) -> "Seen":
        """Look at the photos of the last session alone, whose classes no other session has.

        Its rows of the factor are a block of their own, which leads from the mean to its photos.
        """
        assert isinstance(sums.scatter, ThinScatter)
        *_, (rows, targets) = sums.scatter.rows()
        own = np.square(targets).sum(axis=0) > 0.5  # other classes are in one row, and hardly
        hull = Hull(sums.mean, *np.linalg.qr(rows.T), sums.n_samples)
        shares = sums.class_counts[own] / sums.n_samples
        return cls(len(rows), hull, sums.class_sums[:, own], rows.T @ targets[:, own], shares)


class _Search:
    """One search for the photos of a hull; a subclass says how candidates are made."""

    def __init__(self, seen: Seen, matrix: Array, seed: int = 0) -> None:
        self.hull, self.matrix, self._n_wanted = seen.hull, matrix, seen.n_photos
        self.generator = np.random.default_rng(seed)
        self.class_sums = seen.class_sums.copy()  # of what is not found yet
        self._shares, self._cross = seen.shares, seen.hull.basis.T @ seen.cross
        self._inverse = np.linalg.pinv(matrix.T)  # (d, D)

    def start(self) -> Array:
        """Draw a feature, (d,), about what is left of some class."""
        left = np.flatnonzero(self.class_sums[-1] > 0.5)
        sums = self.class_sums[:, self.generator.choice(left)]
        middle = self.fused(sums[:-1] / sums[-1])
        size = np.linalg.norm(middle) / np.sqrt(len(middle)) * self.generator.choice(_SPREADS)
        return middle + size * self.generator.standard_normal(len(middle))

    def fused(self, lifted: Array) -> Array:
        """Return about the feature, (d,), whose φ is near: half of uR passes the ReLU."""
        return self._inverse @ (2.0 * (lifted - lifted.mean()))

    def candidate(self) -> Array | None:
        """Return a feature that may be a photo's."""
        raise NotImplementedError

    def run(self, budget: float) -> Found:
        """Search for so many CPU seconds, or until nothing is left."""
        begin, n_tries, found = time.process_time(), 0, []
        while len(found) < self._n_wanted and time.process_time() - begin < budget:
            fused, n_tries = self.candidate(), n_tries + 1
            if fused is None:
                continue
            lifted = np.maximum(fused @ self.matrix, 0.0)
            off = self.hull.distance(lifted)
            if off @ off > _EXACT * (lifted @ lifted):
                continue
            found.append(fused)
            label = int((self._shares + self._cross.T @ self.hull.dual(lifted)).argmax())
            self.class_sums[:, label] -= np.append(lifted, 1.0)
            if self.hull.n_dimensions:
                self.hull.take_out(lifted)
        return Found(np.array(found), n_tries, time.process_time() - begin)


class Descent(_Search):
    """Walks from drawn features towards the hull (Levenberg and Marquardt)."""

    def candidate(self) -> Array:
        """Return the feature where a walk ended."""
        hull, matrix, fused = self.hull, self.matrix, self.start()
        damping, off, active = 1e-3, *self._off(fused)
        for _ in range(80):
            slopes = (matrix * active).T
            curvature, gradient = hull.curvature(slopes), slopes.T @ off
            unit = np.eye(len(fused)) * np.trace(curvature) / len(fused)
            for _ in range(8):
                step = np.linalg.solve(curvature + damping * unit, -gradient)
                there, active_there = self._off(fused + step)
                if there @ there < off @ off:
                    break
                damping *= 4.0
            else:
                return fused
            gain = 1.0 - (there @ there) / (off @ off)
            fused, off, active, damping = fused + step, there, active_there, max(damping / 5, 1e-12)
            if gain < 1e-4 or off @ off < 1e-26 * (hull.mean @ hull.mean):
                return fused
        return fused

    def _off(self, fused: Array) -> tuple[Array, Array]:
        inputs = fused @ self.matrix
        return self.hull.distance(np.maximum(inputs, 0.0)), inputs > 0.0


class Vertices(_Search):
    """Finds vertices of the part of the hull where no φ is negative, by linear programs."""

    def candidate(self) -> Array | None:
        """Return the feature of the vertex that lies farthest in a drawn direction."""
        hull = self.hull
        whole = np.linalg.qr(
            np.column_stack([hull.normals, np.eye(len(hull.normals))]), mode="complete"
        )[0]
        free = whole[:, hull.normals.shape[1] :]
        origin = hull.mean + hull.basis @ (hull.normals @ hull.level)
        if not free.shape[1]:
            return self._fused_of(origin)
        solved = linprog(
            self.generator.standard_normal(free.shape[1]),
            A_ub=-hull.basis @ free,
            b_ub=origin,
            bounds=(None, None),
        )
        if solved.status != 0:
            return None
        return self._fused_of(origin + hull.basis @ (free @ solved.x))

    def _fused_of(self, lifted: Array) -> Array:
        active = lifted > 1e-7 * lifted.max()
        return np.linalg.lstsq(self.matrix[:, active].T, lifted[active])[0]


def from_class_sum(total: Array, k: int, matrix: Array, budget: float, seed: int = 0) -> Found:
    """Recover the k features whose φ add up to a class sum, (D,).

    The columns of R are Gaussian: the means of the sum times them, and times their squares, give
    the mean feature and the space that the features span. A walk from there does the rest.
    """
    d, generator, begin, n_tries = len(matrix), np.random.default_rng(seed), time.process_time(), 0
    centred, normal = total - total.mean(), matrix * np.sqrt(d)
    middle = np.linalg.lstsq(matrix.T, 2.0 * centred)[0] / k
    space = np.linalg.eigh((normal * centred) @ normal.T)[1][:, -k:]
    length = total.mean() * np.sqrt(2.0 * np.pi * d) / k  # of a feature
    spread = np.sqrt(max(length**2 - middle @ middle, 0.05 * length**2))
    while time.process_time() - begin < budget:
        mixed = generator.standard_normal((k, k))
        away = (mixed - mixed.mean(axis=0)) @ space.T
        size = np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-300)
        fused, missing = _walk(middle + spread * away / size, total, matrix, begin + budget)
        n_tries += 1
        if missing < _EXACT:
            return Found(fused, n_tries, time.process_time() - begin)
    return Found(np.empty((0, d)), n_tries, time.process_time() - begin)


def _walk(fused: Array, total: Array, matrix: Array, until: float) -> tuple[Array, float]:
    """Return features, (k, d), whose φ add up to nearly `total`, and how nearly."""

    def off(fused: Array) -> tuple[Array, Array]:
        inputs = fused @ matrix
        return np.maximum(inputs, 0.0).sum(axis=0) - total, inputs > 0.0

    damping, missing, active = 1e-2, *off(fused)
    while time.process_time() < until:
        slopes = np.concatenate([matrix * each for each in active])  # (kd, D)
        curvature, gradient = slopes @ slopes.T, slopes @ missing
        unit = np.eye(len(gradient)) * np.trace(curvature) / len(gradient)
        for _ in range(10):
            step = np.linalg.solve(curvature + damping * unit, -gradient).reshape(fused.shape)
            there, active_there = off(fused + step)
            if there @ there < missing @ missing:
                break
            damping *= 4.0
        else:
            break
        gain = 1.0 - (there @ there) / (missing @ missing)
        fused, missing, active = fused + step, there, active_there
        damping = max(damping / 4.0, 1e-10)
        if gain < 1e-6 or missing @ missing < 1e-26 * (total @ total):
            break
    return fused, float(missing @ missing / (total @ total))
