"""What must hold in a model file beyond the types of its parts.

A file may have been made by anybody, so nothing in it is believed that can be checked. What fails
raises a ValueError; ``file.py`` turns that into one line that names the file.
"""

import re
import warnings
from collections.abc import Sequence

import numpy as np

from visvm.errors import IncompatibleModelError, NeverLearnedError
from visvm.head.checks import is_positive
from visvm.head.head import Head
from visvm.head.scatter import DenseScatter
from visvm.head.statistics import Statistics
from visvm.model.header import Header

# A file may ask for so many bytes of memory, or for so many times its own size
_FREE_BYTES, _TIMES_ITS_SIZE = 2**28, 256
_MOST_IMAGES = 2**53  # which float64 counts one by one
# Relative: far above what rounding does to sums, however often they were added and taken away
_TOLERANCE = 1e-3
_UNLIKE = 10.0  # features that many times as long as others are hardly of the same encoder


def check_header(header: Header, file_size: int) -> None:
    """Check what the parts of a header say about one another."""
    classes, merged = header.classes, header.merged
    if len({type(label) for label in classes}) > 1 or classes != sorted(set(classes)):
        raise ValueError("classes are not sorted names or numbers")
    if any(re.search("[\0\ud800-\udfff]", label) for label in classes if isinstance(label, str)):
        raise ValueError("a class has a name that is not text")  # nor as an array, or in UTF-8
    if len(header.counts) != len(classes):
        raise ValueError("counts are not one number for every class")
    if not all(0.0 <= each.calibration_weight <= 1.0 for each in merged):
        raise ValueError("a calibration weight is not between 0 and 1")
    if any(len({type(label) for label in each.labels}) != 1 for each in merged):
        raise ValueError("the labels of a site are not names or numbers")
    if (header.head.form is None) != ("class_sums" not in header.tensors):
        raise ValueError("the sums are not those of the form")
    if header.kind not in (None, header.kind_by_parts):
        raise ValueError(f"a {header.kind} has other parts")
    moments = [each.learned_at for each in header.sessions] + [each.merged_at for each in merged]
    moments += [each.at for each in header.events]
    if not all(re.fullmatch(r"[0-9T:.+Z -]{4,40}", moment) for moment in moments):
        raise ValueError("a date is none")
    _check_numbers(header)
    _check_proportion(header, file_size)


def _check_numbers(header: Header) -> None:
    """Refuse numbers of images that cannot be, and shares that are not between 0 and 1."""
    sessions, head = header.sessions, header.head
    choices = [each.ridge_choice for each in sessions if each.ridge_choice is not None]
    bases = [(each.n_images, each.n_classes) for each in choices]
    if head.ridge_basis is not None:
        bases.append((head.ridge_basis.n_images, head.ridge_basis.n_classes))
    counts = [
        *header.counts,
        *(each.n_images for each in header.merged),
        *(n for each in header.events for n in (each.n_images or 0, each.after_session)),
        *(n for each in sessions for n in (each.session, each.n_images, each.n_classes)),
        *(each.peak_memory or 0 for each in sessions),
        *(each.settled_on or 0 for each in sessions),
        *(n for each in sessions if each.estimate for n in each.estimate.counts),
        *(head.n_components or 0, header.calibrated_classes, *head.layers, *head.layer_dims),
    ]
    if not all(0 <= count < _MOST_IMAGES for count in counts):
        raise ValueError("a number of images, classes, blocks or bytes is impossible")
    if not all(1 <= count < _MOST_IMAGES for basis in bases for count in basis):
        raise ValueError("a ridge was chosen by an impossible number of images or classes")
    tests = [each.test for each in sessions if each.test is not None]
    shares = [
        share
        for test in tests
        for share in (
            test.accuracy,
            test.old_accuracy,
            test.new_accuracy,
            test.accuracy_before,
        )
        if share is not None
    ]
    estimates = [each.estimate for each in sessions if each.estimate is not None]
    shares += [each.accuracy for each in estimates]
    shares += [worst.accuracy for each in estimates for worst in each.worst]
    if not all(0.0 <= share <= 1.0 for share in shares):
        raise ValueError("an accuracy is not between 0 and 1")
    ridges = [*(each.ridge for each in sessions), *(each.before for each in choices)]
    if not all(map(is_positive, (head.chosen_ridge, *ridges))):
        raise ValueError("a ridge is not above 0")


def _check_proportion(header: Header, file_size: int) -> None:
    """Refuse a map or an array of names far larger than the file, before it is made."""
    dims, names = header.head.layer_dims, [each for each in header.classes if isinstance(each, str)]
    drawn = 8 * sum(dims[-1:]) * (header.head.n_components or 0)
    # as numpy holds them: all as long as the longest
    named = 4 * len(names) * max(map(len, names), default=0)
    if max(drawn, named) > max(_FREE_BYTES, _TIMES_ITS_SIZE * file_size):
        raise ValueError("it asks for far more memory than its own size")


def check_counts(counts: Sequence[int], statistics: Statistics) -> None:
    """Check that there are whole images of every class, and as many as the header says."""
    held = statistics.class_counts
    if not ((held >= 1) & (held < _MOST_IMAGES) & (held == np.round(held))).all():
        raise ValueError("the number of images of a class is impossible")
    if [round(count) for count in held.tolist()] != list(counts):
        raise ValueError("counts are not those of the sums")


def check_sums(head: Head, own: Head) -> None:
    """Refuse sums that no images could have; warn of those that hardly any images have.

    Parameters
    ----------
    head : Head
        With the sums of others.
    own : Head
        With the sums of the model that they are to be added to, which may be none.

    Raises
    ------
    IncompatibleModelError
    """
    sums = head.statistics
    for holds in (_are_of_features, _is_scatter, _agree):
        if not holds(head):
            raise IncompatibleModelError(
                "These sums were altered: no images could have them. "
                "Ask the site to send them again.",
                code="sums-impossible",
            )
    if len(own.statistics.classes):
        ratio = np.sqrt(_mean_square(sums) / max(_mean_square(own.statistics), 1e-300))
        if not 1 / _UNLIKE < ratio < _UNLIKE:
            warnings.warn(
                f"The features to be merged are {ratio:.3g} times as large as those learned here. "
                "Make sure that both learned the same kind of images.",
                stacklevel=2,
            )


def _mean_square(sums: Statistics) -> float:
    return sums.square_sum() / sums.n_samples


def _are_of_features(head: Head) -> bool:
    """Whether lifted features, which are never below zero for some maps, can have these sums."""
    class_sums = head.statistics.class_sums
    least = -_TOLERANCE * float(np.abs(class_sums).max())
    return not head.settled.lift.kernel_map.nonnegative or float(class_sums.min()) >= least


def _is_scatter(head: Head) -> bool:
    """Whether the second moment can be one: of so many images, and never below zero."""
    sums, scatter = head.statistics, head.statistics.scatter
    if isinstance(scatter, DenseScatter):
        try:
            scatter.check(sums.square_sum())
        except NeverLearnedError:
            return False
        return True
    # the one-hot targets' own scatter is known from the counts
    counts, n = sums.class_counts, sums.n_samples
    most = counts - counts**2 / n + _TOLERANCE * n
    return scatter.n_rows < n and bool((np.square(scatter.targets).sum(axis=0) <= most).all())


def _agree(head: Head) -> bool:
    """Whether class sums and scatter are of the same images, by one random mix of the classes."""
    sums, scatter = head.statistics, head.statistics.scatter
    mix = np.random.default_rng(0).standard_normal((len(sums.classes), 1))
    expected = sums.class_sums[:-1] @ mix - sums.mean[:, None] * (sums.class_counts @ mix)
    if isinstance(scatter, DenseScatter):
        found = scatter.cross @ mix
    else:
        found = scatter.transposed_times(scatter.targets @ mix)
    size = float(np.abs(sums.class_sums[:-1]).sum(axis=1).max())
    return bool(np.abs(found - expected).max() <= _TOLERANCE * size)
