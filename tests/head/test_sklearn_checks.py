"""scikit-learn's own checks, on both estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from visvm import IncrementalLSSVC, VisClassifier

pytestmark = pytest.mark.slow

SPLIT = (
    "λ is chosen on a random split, which sees a weighted sample once and its copies apart; "
    "with ridge given it passes"
)
BATCHES = (
    "the mixer is trained on random batches, which see a weighted sample once and its copies apart"
)


def reasons(estimator):
    """Checks that cannot apply, each with its reason."""
    check = "check_sample_weight_equivalence_on_dense_data"
    if estimator.ridge == "auto":
        return {check: SPLIT}
    return {check: BATCHES} if isinstance(estimator, VisClassifier) else {}


ESTIMATORS = [
    IncrementalLSSVC(n_components=40),
    IncrementalLSSVC(n_components=40, ridge=1.0),
    IncrementalLSSVC(n_components=None, ridge=1.0),
    VisClassifier(n_components=40, hidden=16),
    VisClassifier(n_components=40, hidden=16, ridge=1.0, layers=(1,)),
]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=reasons)
def test_sklearn_checks(estimator, check):
    check(estimator)
