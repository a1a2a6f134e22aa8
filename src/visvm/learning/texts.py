"""Text features of a file → what they say of the classes of a session (``head/texts.py``)."""

from collections.abc import Iterable

import numpy as np

from visvm.encoders.encoder import Encoder
from visvm.encoders.joint import tail_of
from visvm.encoders.texts import TextFeatures, is_chance, mismatch, unit
from visvm.errors import EncoderError
from visvm.head.head import Head
from visvm.head.texts import TextSamples
from visvm.model.labels import Label


def text_samples(texts: TextFeatures, encoder: Encoder, labels: Iterable[Label]) -> TextSamples:
    """Return the shortest image features that project to the texts of these classes.

    Raises
    ------
    EncoderError
        The encoder has no projection, or the texts are of another one.
    """
    tail = tail_of(encoder)
    if tail is None:
        raise EncoderError(
            f"Texts need the last norm and the projection of a CLIP image tower, which "
            f"{encoder.name} does not have. Leave the texts out, or use a CLIP encoder.",
            code="tail-missing",
        )
    if reason := mismatch(texts, tail.matrix.shape[1], encoder.digest):
        raise EncoderError(
            f"The texts cannot be used: {reason}. Encode the names with its own text tower.",
            code="text-mismatch",
        )
    classes = tuple(dict.fromkeys(labels))
    said = texts.of([str(label) for label in classes]).prototypes
    return TextSamples(classes, tail.preimage(said.astype(np.float64)))


def require_kin(texts: TextSamples, head: Head) -> None:
    """Refuse texts that say no more of the mean photos of their classes than chance would."""
    sums, lift = head.statistics, head.settled.lift.kernel_map.lift
    labels = sums.classes.tolist()
    rows = [place for place, label in enumerate(texts.classes) if label in labels]
    columns = [labels.index(texts.classes[row]) for row in rows]
    if len(rows) < 2:
        return
    means = (sums.class_sums[:-1, columns] / sums.class_counts[columns]).T
    said = lift(texts.rows[rows])
    means, said = (unit(each - each.mean(axis=0)) for each in (means, said))
    right = int(((means @ said.T).argmax(axis=1) == np.arange(len(rows))).sum())
    if is_chance(right, len(rows), len(rows)):
        raise EncoderError(
            f"The texts are nearest to the mean photo of {right} of {len(rows)} classes, which is "
            "chance. Give those of the text tower that belongs to this encoder.",
            code="text-at-chance",
        )
