# %% [markdown]
# # A comparison, step by step
#
# Methods of the benchmark on cached features, in Python: a stream of sessions, some closed-form methods, one of your own, and what they forget. For tables of a paper use
# [recipes](../research/recipes.md), which are resumed and keep every number.

# %%
import os
import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist

from visvm import ImageClassifier, load_encoder
from visvm.bench.digits import digit_pictures
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Costs, Setup
from visvm.bench.streams import class_order, session_sizes

ENCODER = os.environ.get("NOTEBOOK_ENCODER", "dinov2-s14")

# %% [markdown]
# ## Features, encoded once
#
# scikit-learn's digits as pictures. `layer_features` gives each block's CLS token, side by side, and keeps it in the cache: the second time is free.

# %%
TRAIN, TEST = 12, 8
pictures = list(digit_pictures(0, TRAIN + TEST))
names = [name for name, _ in pictures]
contents = [content for _, content in pictures]
clf = ImageClassifier(ENCODER, transform="squash")
for attempt in ("first", "second"):
    begin = time.perf_counter()
    features = clf.layer_features(contents)
    print(f"{attempt} time: {time.perf_counter() - begin:.2f} s, {features.shape}")

# %% [markdown]
# ## A stream
#
# The class order of the literature (seed 1993), two classes a session. A method sees one session at a time, and classes are numbered as they arrive.

# %%
digits = list(dict.fromkeys(names))
order = [digits[place] for place in class_order(len(digits), seed=1993)]
labels = np.array([order.index(name) for name in names])
is_test = np.arange(len(labels)) % (TRAIN + TEST) >= TRAIN
sizes = session_sizes("B0 Inc2", len(digits))
print(order, sizes)

# %% [markdown]
# ## A method of one's own
#
# Two functions: learn a session, predict. [One file and one line](../research/methods.md) make it a method of `visvm bench`.


# %%
class ClassMedians:
    """The nearest median."""

    def __init__(self, setup):
        self.width, self.medians = setup.layer_dims[-1], []

    def learn(self, features, labels):
        """Keep the median of each class."""
        own = features[:, -self.width :]
        self.medians += [np.median(own[labels == label], axis=0) for label in np.unique(labels)]

    def predict(self, features):
        """Return the class of the nearest median."""
        return cdist(features[:, -self.width :], self.medians).argmin(axis=1)

    def costs(self):
        """Say what is kept."""
        return Costs(trainable_parameters=0, state_bytes=4 * self.width * len(self.medians))


# %% [markdown]
# ## The comparison
#
# After each session every method is asked about the test pictures of all classes so far. `vis-oracle` keeps all images and learns them anew: the ceiling.

# %%
encoder = load_encoder(ENCODER)
setup = Setup(encoder.layer_dims, encoder.project)
methods = {"class-medians": ClassMedians(setup)}
for name in ("simplecil", "slda", "ranpac-head", "visual-lssvm+kernel", "vis-oracle"):
    entry = METHODS[name]
    methods[name] = entry.make(setup, **entry.changed({"n_components": 500}))

accuracy = {name: [] for name in methods}
for known in np.cumsum(sizes):
    new = ~is_test & (labels >= known - 2) & (labels < known)
    asked = is_test & (labels < known)
    for name, method in methods.items():
        method.learn(features[new], labels[new])
        accuracy[name].append(float(np.mean(method.predict(features[asked]) == labels[asked])))

# %%
print(f"{'':20} average   end   state")
for name, values in sorted(accuracy.items(), key=lambda item: -np.mean(item[1])):
    state = methods[name].costs().state_bytes / 1e6
    print(f"{name:20} {100 * np.mean(values):6.1f} {100 * values[-1]:6.1f} {state:6.1f} MB")

# %%
for name, values in accuracy.items():
    plt.plot(np.cumsum(sizes), np.multiply(values, 100), "o-", label=name)
plt.xlabel("classes learned so far")
plt.ylabel("accuracy on all of them (%)")
plt.legend(fontsize=8)
plt.show()

# %% [markdown]
# 80 test pictures: one is 1.25 points, so most of these differences mean nothing. What a comparison needs before it means something: several seeds and class orders, pair by pair
# ([results](../research/results.md)).
