"""Ask an exported model about a photo, with numpy and ONNX Runtime only.

    visvm export birds.visvm birds.onnx
    python ask.py birds.onnx photo.ppm

A PPM file holds bare pixels; most image programs write it ("ffmpeg -i photo.jpg photo.ppm"). With
Pillow, any photo will do:
``np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))``.
"""

import json
import re
import sys

import numpy as np
import onnxruntime


def read_ppm(path):
    """Return the pixels of a binary PPM file, (height, width, 3)."""
    with open(path, "rb") as file:
        content = file.read()
    gap = rb"(?:\s|#.*\n)+"  # comments too
    header = re.match(gap.join([rb"P6", rb"(\d+)", rb"(\d+)", rb"255\s"]), content)
    if header is None:
        sys.exit(f"{path} is not a binary PPM file of 8 bits.")
    width, height = map(int, header.groups())
    pixels = np.frombuffer(content, np.uint8, offset=header.end())
    if pixels.size != 3 * width * height:
        sys.exit(f"{path} has {pixels.size} numbers instead of {width} × {height} × 3.")
    return pixels.reshape(height, width, 3)


def main(model, photo):
    """Print the likeliest classes of a photo."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    labels = json.loads(about["visvm.labels"])
    names = [each.name for each in session.get_outputs()]
    image = read_ppm(photo)[None]  # a batch of one
    answers = dict(zip(names, session.run(names, {"image": image}), strict=True))
    if "known" in answers and answers["known"][0] < float(about["visvm.unknown"]):
        print("none of these; closest:")
    for place in answers["top"][0]:
        print(f"{labels[place]} {100 * answers['probabilities'][0, place]:.1f} %")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python ask.py MODEL.onnx PHOTO.ppm")
    main(*sys.argv[1:])
