"""Images → layer features.

Reading order: ``encoder`` (what an encoder is), ``images`` (a file's content → pixels), ``sources``
(where the files are), ``catalog`` (the encoders that have a name), ``download``, ``graph`` and
``weights`` (how their weights get here), ``onnx`` (the default engine), ``tower``, ``huggingface``
and ``open_clip`` (the engine of the extra ``torch``, and its checkpoints), ``loading`` (a name → an
encoder), ``cache`` (features on disk), ``pipeline`` (images → features).
"""
