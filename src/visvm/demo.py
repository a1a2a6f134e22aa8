"""The whole idea in seconds: digits learned two classes at a time, beside a head that forgets.

Run by ``make demo``, or ``python -m visvm.demo``.
"""

import sys
import time
from typing import TextIO

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from visvm.head.classifier import IncrementalLSSVC


def run(out: TextIO) -> None:
    """Learn scikit-learn's digits in five sessions and write, after each, the accuracy on all classes seen so far."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    ours = IncrementalLSSVC(n_components=2000, random_state=0)
    theirs = SGDClassifier(random_state=0)  # a linear SVM on the same lifted features, trained by gradient steps
    out.write("scikit-learn's digits, two classes a session; accuracy on the test images of all classes seen so far\n\n")
    out.write("session  classes  visvm   gradient-trained head  seconds (visvm)\n")
    for first in range(0, 10, 2):
        new = (y_train == first) | (y_train == first + 1)
        begin = time.perf_counter()
        ours.partial_fit(X_train[new], y_train[new])
        seconds = time.perf_counter() - begin
        lift = ours.kernel_map_.lift
        for _ in range(10):
            theirs.partial_fit(lift(X_train[new]), y_train[new], classes=np.arange(10))
        seen = y_test <= first + 1
        accuracy = ours.score(X_test[seen], y_test[seen]), theirs.score(lift(X_test[seen]), y_test[seen])
        out.write(f"{first // 2 + 1:^7}  {f'0 to {first + 1}':^7}  {accuracy[0]:6.1%}  {accuracy[1]:^21.1%}  {seconds:8.2f}\n")
    whole = IncrementalLSSVC(n_components=2000, ridge=ours.ridge_, random_state=0).fit(X_train, y_train)
    difference = float(np.abs(whole.decision_function(X_test) - ours.decision_function(X_test)).max())
    out.write(
        "\nThe gradient-trained head knows only the last two digits. visvm keeps sums instead of images and solves for all\n"
    )
    out.write(f"classes anew: learned in one go, its scores are the same to {difference:.0e}.\n")


if __name__ == "__main__":
    run(sys.stdout)
