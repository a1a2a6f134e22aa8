"""Images → layer features.

Reading order: ``encoder`` (what an encoder is), ``images`` (a file's content → pixels), ``catalog``
(the encoders that have a name), ``download``, ``graph`` and ``weights`` (how their weights get
here), ``onnx`` (the default engine), ``huggingface`` and ``open_clip`` (the engines of the extra
``torch``), ``loading`` (a name → an encoder), ``cache`` (features on disk), ``pipeline`` (files →
features).
"""
