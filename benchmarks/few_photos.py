"""With few photos a class, whether LDA from the same sums would be the better head.

::

    python benchmarks/few_photos.py --data FOLDER [--datasets SET[:ENCODER],…] [--draws 10]

Both heads are solved from the same lifted features, so a model could choose between them without
another photo. LDA scores are ``φᵀA·m_c - m_cᵀA·m_c / 2`` with ``A = (S_w + νI)⁻¹``, where m_c are
the means of the classes and S_w is the scatter within them; ν is one of 13 values, from 10⁻³ to 10³
times the mean eigenvalue of S_w in the span of the photos. Sets of 10, 20 and 37 classes, 1 to 20
photos of each, the same for both heads; accuracy on 10 test photos a class. In the table:

- LS-SVM: as visvm learns it, λ by its own rule;
- LDA, leave-one-out: ν by the accuracy on the photos learned, each left out in closed form;
- LDA, best: ν as if the test photos were known, which flatters it;
- chosen: whichever of the two heads is right more often on the photos learned, each left out;
  LS-SVM where both are right alike.

All but the first column are differences to it in points. Encoded features come from the cache.
Prints the tables and keeps them in FEW_PHOTOS.md beside this file.
"""

import argparse
from pathlib import Path

import numpy as np
from suggest import encoded, named

from visvm import IncrementalLSSVC
from visvm.bench.loading import load_dataset

HERE = Path(__file__).parent
SIZES, SHOTS, TESTED, WIDTH = (10, 20, 37), (1, 2, 5, 10, 20), 10, 5000
SHARES = np.logspace(-3, 3, 13)
COLUMNS = ("LDA, leave-one-out", "LDA, best", "chosen")


class Discriminant:
    """Linear discriminant analysis in the span of its samples, where everything is a product.

    Parameters
    ----------
    rows : array of shape (N, D)
    targets : array of shape (N,)
        Places of their classes, each of which has as many samples.
    """

    def __init__(self, rows: np.ndarray, targets: np.ndarray) -> None:
        self.rows, self.targets = rows, targets
        one_hot = np.eye(targets.max() + 1)[targets]
        self.n = len(rows) // one_hot.shape[1]
        self.average = one_hot / self.n  # (N, C): samples → means
        kernel = rows @ rows.T
        self.with_means = kernel @ self.average  # (N, C)
        self.means = self.average.T @ self.with_means  # (C, C)
        inner = np.eye(len(rows)) - one_hot @ self.average.T  # takes the means away
        self.values, self.vectors = np.linalg.eigh(inner @ kernel @ inner)
        self.values = np.maximum(self.values, 0.0)
        self.kernel, self.inner = kernel, inner
        self.scale = self.values.sum() / max(len(rows) - one_hot.shape[1], 1) or 1.0

    def _form(
        self, left: np.ndarray, right: np.ndarray, plain: np.ndarray, nu: float
    ) -> np.ndarray:
        """Return left·A·rightᵀ, by products with the centred samples, and with each other."""
        inside = (left @ self.vectors) / (self.values + nu)
        return (plain - inside @ (right @ self.vectors).T) / nu

    def scores(self, asked: np.ndarray, nu: float) -> np.ndarray:
        """Return the scores, (n, C), of rows, (n, D)."""
        products = asked @ self.rows.T
        means = self.average.T @ self.kernel @ self.inner
        cross = self._form(products @ self.inner, means, products @ self.average, nu)
        return cross - 0.5 * np.diag(self._form(means, means, self.means, nu))

    def left_out(self, nu: float) -> np.ndarray:
        """Return the scores, (N, C), of its samples, each by the discriminant without it.

        Without sample i, with z = φ - m, its class has the mean m - z/(n-1), and S_w loses
        z·zᵀ·n/(n-1).
        """
        samples, means = self.kernel @ self.inner, self.average.T @ self.kernel @ self.inner
        own, share = self.targets, self.n / (self.n - 1.0)
        form_xm = self._form(samples, means, self.with_means, nu)  # xᵀA·m_c
        form_mm = self._form(means, means, self.means, nu)
        form_xx = np.diag(self._form(samples, samples, self.kernel, nu))
        at = np.arange(len(own))
        form_zx = form_xx - form_xm[at, own]
        form_zm = form_xm - form_mm[own]  # (N, C): zᵀA·m_c
        form_zz = form_zx - form_zm[at, own]
        gain = (share / np.maximum(1.0 - share * form_zz, 1e-9))[:, None]
        xm = form_xm + gain * form_zx[:, None] * form_zm
        mm = np.diag(form_mm) + gain * form_zm**2
        gain, step = gain[:, 0], 1.0 / (self.n - 1.0)
        zx = form_zx + gain * form_zx * form_zz
        zz = form_zz + gain * form_zz**2
        zm = form_zm[at, own] + gain * form_zm[at, own] * form_zz
        xm[at, own] -= step * zx
        mm[at, own] += step**2 * zz - 2.0 * step * zm
        return xm - 0.5 * mm


def right(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the accuracy in percent."""
    return 100.0 * float((scores.argmax(axis=1) == targets).mean())


def measure(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], n: int, draw: int
) -> np.ndarray:
    """Return accuracies, (shots, 1 + columns), of one draw of n classes."""
    generator = np.random.default_rng([n, draw])
    classes = np.sort(generator.choice(np.unique(train[1]), n, replace=False))
    places = [
        [generator.permutation(np.flatnonzero(part[1] == each)) for each in classes]
        for part in (train, test)
    ]
    asked = np.concatenate([each[:TESTED] for each in places[1]])
    wanted = np.searchsorted(classes, test[1][asked])
    found = []
    for shots in SHOTS:
        rows = np.concatenate([each[:shots] for each in places[0]])
        X, y = train[0][rows], np.searchsorted(classes, train[1][rows])
        head = IncrementalLSSVC(n_components=WIDTH, random_state=draw).fit(X, y).head_
        plain = right(head.scores(test[0][asked]), wanted)
        if shots == 1:  # without its only photo, a class is gone: nothing to choose by
            other = Discriminant(head.settled.lift(X), y)
            best = max(
                right(other.scores(head.settled.lift(test[0][asked]), nu), wanted) for nu in SHARES
            )
            found.append([plain, best, best, plain])
            continue
        other, lifted = Discriminant(head.settled.lift(X), y), head.settled.lift(test[0][asked])
        tried = [
            (
                right(other.left_out(share * other.scale), y),
                share,
                right(other.scores(lifted, share * other.scale), wanted),
            )
            for share in SHARES
        ]
        unseen, _, chosen = max(tried)
        own = right(head.leave_one_out_scores(X, y), y)
        found.append(
            [plain, chosen, max(each[2] for each in tried), chosen if unseen > own else plain]
        )
    return np.array(found)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", default="cub200:dinov2-s14,cifar100:clip-b16-openai")
    parser.add_argument("--draws", type=int, default=10)
    given = parser.parse_args()
    said = __doc__.split("10]\n", 1)[1].split("Encoded", 1)[0]
    lines = ["# Few photos a class", "", __doc__.split("::", 1)[0].strip(), "", said.strip(), ""]
    for name, encoder in named(given.datasets):
        limits = {"train_per_class": 20, "test_per_class": 10} if name == "cifar100" else {}
        data = load_dataset(name, given.data, **limits)
        train, test = (encoded(each, encoder) for each in (data.train, data.test))
        lines += [
            f"## {name}, {encoder}",
            "",
            f"| classes | photos | LS-SVM | {' | '.join(COLUMNS)} |",
        ]
        lines += ["|---:|---:|" + "---:|" * (1 + len(COLUMNS))]
        for n in SIZES:
            found = np.array([measure(train, test, n, draw) for draw in range(given.draws)])
            for row, shots in enumerate(SHOTS):
                more = found[:, row, 1:] - found[:, row, :1]
                error = more.std(axis=0, ddof=1) / np.sqrt(len(more))
                pairs = zip(more.mean(axis=0), error, strict=True)
                cells = " | ".join(f"{mean:+.2f} ± {each:.2f}" for mean, each in pairs)
                lines.append(f"| {n} | {shots} | {found[:, row, 0].mean():.2f} | {cells} |")
                print(lines[-1], flush=True)
        lines.append("")
    how = f"--datasets {given.datasets} --draws {given.draws}"
    lines += [f"D = {WIDTH}; means of {given.draws} draws of classes and photos, ±"]
    lines += ["the standard error of the paired difference. Written by"]
    lines += [f"`python benchmarks/few_photos.py --data FOLDER {how}`.", ""]
    (HERE / "FEW_PHOTOS.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
