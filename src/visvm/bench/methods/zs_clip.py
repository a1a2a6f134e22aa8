"""CLIP's own zero-shot classifier, which compares images with class names: not written yet."""

from visvm.bench.methods.method import Entry

ENTRIES = [Entry("zs-clip", None, needs=("text",), published="zs-clip")]
