"""A slow float64 solver written from the paper's equations. It shares no code with ``src``.

Everything is done sample by sample or with a dense decomposition of the raw augmented features, so
that each line can be held against the paper.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal


def augmented(phi):
    """Eq. 9: [φ; 1]."""
    return np.hstack([np.asarray(phi, dtype=np.float64), np.ones((len(phi), 1))])


def signs(y, classes):
    """Y in ±1 over all classes seen."""
    return np.array([[1.0 if label == c else -1.0 for c in classes] for label in y])


def one_hot(y, classes):
    return np.array([[1.0 if label == c else 0.0 for c in classes] for label in y])


def coefficients(phi, targets, ridge, svm_cost, weight=None):
    """Eq. 13, (λI + C ΦᵀΦ)⁻¹ C ΦᵀY, by the singular values of Φ, so that nothing is squared."""
    rows = augmented(phi)
    if weight is not None:
        root = np.sqrt(np.asarray(weight, dtype=np.float64))[:, None]
        rows, targets = root * rows, root * targets
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    shrink = svm_cost * values / (ridge + svm_cost * values**2)
    return right.T @ (shrink[:, None] * (left.T @ targets))


def scores(phi, y, test, ridge, svm_cost=10.0, weight=None, coding=signs):
    """Scores of `test` by a model that has seen (phi, y) in one batch."""
    targets = coding(y, sorted(set(np.asarray(y).tolist())))
    return augmented(test) @ coefficients(phi, targets, ridge, svm_cost, weight)


def normal_equations(phi, y, ridge, svm_cost):
    """Eq. 14-17, adding one sample at a time, with a new column of Q for every new class."""
    width, classes = phi.shape[1] + 1, []
    gram, total, cross = np.zeros((width, width)), np.zeros(width), np.zeros((width, 0))
    for sample, label in zip(augmented(phi), y, strict=True):
        if label not in classes:
            classes.append(label)
            cross = np.hstack([cross, -total[:, None]])  # eq. 15
        gram += np.outer(sample, sample)
        cross += np.outer(sample, [1.0 if label == c else -1.0 for c in classes])
        total += sample
    order = np.argsort(classes)
    weights = np.linalg.solve(ridge * np.eye(width) + svm_cost * gram, svm_cost * cross)
    return gram, cross[:, order], total, weights[:, order]


def recursive_least_squares(phi, y, sessions, ridge):
    """ACIL: the inverse of (ΦᵀΦ + γI) and one-hot weights updated session by session (Woodbury)."""
    rows, classes = augmented(phi), sorted(set(np.asarray(y).tolist()))
    inverse, weights = np.eye(rows.shape[1]) / ridge, np.zeros((rows.shape[1], len(classes)))
    for session in sessions:
        x, targets = rows[session], one_hot(np.asarray(y)[session], classes)
        inverse -= inverse @ x.T @ np.linalg.inv(np.eye(len(x)) + x @ inverse @ x.T) @ x @ inverse
        weights += inverse @ x.T @ (targets - x @ weights)
    return weights


def log_evidence(phi, y, ridge, svm_cost=10.0):
    """Log-density of all ±1 targets, with W̃ ~ N(0, σ²·C/λ) and noise N(0, σ²), at the best σ²."""
    rows, targets = augmented(phi), signs(y, sorted(set(np.asarray(y).tolist())))
    covariance = np.eye(len(rows)) + svm_cost / ridge * rows @ rows.T

    def surprise(log_variance):
        normal = multivariate_normal(cov=np.exp(log_variance) * covariance)
        return -normal.logpdf(targets.T).sum()

    return -minimize_scalar(surprise, bracket=(-3.0, 0.0)).fun


def arc_cosine_kernel(x, y):
    """Arc-cosine kernel of degree 1 (Cho & Saul, 2009), without its factor 1/π · … written out."""
    norms = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    angle = np.arccos(np.clip(x @ y.T / norms, -1.0, 1.0))
    return norms * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi


def relu_map(features, matrix):
    """Eq. 8."""
    return np.maximum(np.asarray(features, dtype=np.float64) @ matrix, 0.0)


def error(got, wanted):
    """Largest difference, as a share of the scores' range, or of their size where all are alike."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    scale = max(np.ptp(wanted), np.abs(wanted).max(), 1e-9)
    return np.abs(got - wanted).max() / scale
