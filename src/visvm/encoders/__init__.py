"""Images → layer features.

Reading order: ``files`` (what survives a power cut), ``encoder`` (what an encoder is),
``transform`` (a picture → the square it takes), ``bounds`` (files that would take too much work),
``images`` (a file's content → pixels), ``memory`` (images of Pillow and arrays → such content),
``sources`` (where the files are), ``video`` (frames of clips and cameras), ``resolution`` (larger
pictures, and what a name says behind its @), ``catalog`` (the encoders that have a name),
``download``, ``graph`` and ``weights`` (how their weights get here), ``patches`` and ``int8``
(fewer patches, products of whole numbers), ``onnx`` (the default engine), ``tower``,
``huggingface`` and ``open_clip`` (the engine of the extra ``torch``, and its checkpoints),
``joint`` (CLIP's last norm and projection apart), ``texts`` (text features of class names, a
file), ``prompts``, ``bpe`` and ``text_tower`` (class names → text features, extra ``torch``),
``loading`` (a name → an encoder), ``presets`` (names by the time an image may take), ``cache``
(features on disk), ``pipeline`` (images → features), ``occlusion`` (which part of a picture an
answer rests on).
"""
