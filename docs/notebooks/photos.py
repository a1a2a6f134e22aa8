# %% [markdown]
# # From photos to a page
#
# From photos in folders to a model, a check of it, and a file that answers without visvm. The pictures are pieces of three photographs that come with scikit-learn and
# matplotlib, so nothing but the encoder is downloaded. They are real, but an easy task: figures here say nothing about yours.

# %%
import os
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from visvm import ImageClassifier

ENCODER = os.environ.get("NOTEBOOK_ENCODER", "dinov2-s14")
generator = np.random.default_rng(0)

# %% [markdown]
# ## Photos in folders
#
# Each class is a part of a photograph, and its photos are squares cut out of it at random.

# %%
china, flower = (Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg"))
portrait = Image.open(Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg")
PARTS = {  # photograph; left, top, right and bottom of the part
    "tower": (china, (70, 60, 350, 330)),
    "lake": (china, (330, 60, 550, 260)),
    "trees": (china, (0, 300, 640, 427)),
    "dahlia": (flower, (165, 80, 450, 360)),
    "leaves": (flower, (0, 0, 150, 427)),
    "portrait": (portrait, (120, 0, 420, 360)),
}


def cut(name, folder, n):
    """Save so many squares of a part of a photograph."""
    photo, (left, top, right, bottom) = PARTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(n):
        side = int(generator.integers(90, 125))
        x, y = generator.integers(left, right - side), generator.integers(top, bottom - side)
        square = photo.crop((x, y, x + side, y + side))
        square.save(folder / f"{number}.jpg", quality=90)


for name in ("tower", "lake", "trees", "dahlia"):
    cut(name, Path("photos") / name, 12)
    cut(name, Path("held-out") / name, 4)
cut("leaves", Path("more") / "leaves", 12)
cut("leaves", Path("held-out-later") / "leaves", 4)
cut("portrait", Path("strangers"), 4)

figure, axes = plt.subplots(1, 6, figsize=(9, 1.8))
for panel, path in zip(
    axes, [*sorted(Path("photos").glob("*/0.jpg")), "more/leaves/0.jpg", "strangers/0.jpg"]
):
    panel.imshow(Image.open(path))
    panel.set_title(Path(path).parent.name, fontsize=9)
    panel.axis("off")
plt.show()

# %% [markdown]
# ## Check before learning
#
# One photo of the tower is put among the trees. `check` scores every photo as if it had not been learned, and finds it.

# %%
os.replace("photos/tower/11.jpg", "photos/trees/planted.jpg")
clf = ImageClassifier(ENCODER, n_components=2000, transform="squash")
for found in clf.check("photos").mislabelled:
    print(found.path, "is called", found.label, "and looks like", found.suggested)
os.replace("photos/trees/planted.jpg", "photos/tower/11.jpg")

# %% [markdown]
# ## Learn
#
# Four classes first, and an accuracy on photos that are not learned.

# %%
report = clf.learn("photos", test="held-out")
print(f"{report.test.accuracy:.0%} of {report.test.n} photos")
report

# %% [markdown]
# Any day later another class, without the old photos:

# %%
clf.learn("more", test="held-out-later")

# %%
evaluation = clf.evaluate("held-out")
print(f"{evaluation.accuracy:.0%} of {evaluation.n} photos of the old classes")

# %% [markdown]
# ## Ask
#
# Photos of what was learned, and of a stranger: pieces of a portrait.

# %%
for answer in clf.predict(
    [*sorted(Path("held-out").glob("*/0.jpg")), *sorted(Path("strangers").iterdir())]
):
    said = "none of these, closest:" if answer.unknown else ""
    print(f"{answer.path:28} {said} {answer.label} {answer.score:.0%}")

# %% [markdown]
# What does an answer rest on? Red parts speak for it, blue ones against.

# %%
explanation = clf.explain("held-out/tower/0.jpg")
Path("why.png").write_bytes(explanation.picture)
plt.figure(figsize=(3, 3))
plt.imshow(Image.open("why.png"))
plt.axis("off")
plt.show()

# %% [markdown]
# ## Deploy
#
# The model is one file. The ONNX file holds everything from the photo to the answer, and needs only ONNX Runtime.

# %%
clf.save("places.visvm")
clf.export_onnx("places.onnx")

import json

import onnxruntime

session = onnxruntime.InferenceSession("places.onnx", providers=["CPUExecutionProvider"])
labels = json.loads(session.get_modelmeta().custom_metadata_map["visvm.labels"])
photo = np.asarray(Image.open("held-out/dahlia/0.jpg"))[None]
(probabilities,) = session.run(["probabilities"], {"image": photo})
print(dict(zip(labels, np.round(probabilities[0].astype(float), 3).tolist())))
print([path.name + f" {path.stat().st_size / 1e6:.1f} MB" for path in Path().glob("places.*")])
