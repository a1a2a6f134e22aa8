"""Model files as their bytes are, by the safetensors package alone."""

import hashlib
import json

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file


def contents(path):
    """The header and the tensors of a file."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["visvm"])
        return header, {name: file.get_tensor(name).copy() for name in file.keys()}  # noqa: SIM118


def same_contents(one, other):
    (header, tensors), (other_header, other_tensors) = one, other
    return (
        header == other_header
        and set(tensors) == set(other_tensors)
        and all(np.array_equal(tensors[name], other_tensors[name]) for name in tensors)
    )


def rewrite(path, change=lambda header, tensors: None, digests=True):
    """Change a model file as one who knows the format could, digests and all."""
    header, tensors = contents(path)
    result = change(header, tensors)
    header = header if result is None else result
    if digests and isinstance(header, dict) and isinstance(header.get("tensors"), dict):
        header["tensors"] = {
            name: hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
            for name, value in tensors.items()
        }
    save_file(tensors, path, metadata=metadata(json.dumps(header)))


def metadata(text):
    """What a file says about itself whose header is this text."""
    return {"visvm": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
