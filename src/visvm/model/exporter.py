"""What has a model writes it: whole, for predicting, for a site, for elsewhere, for a hub."""

import secrets
from abc import abstractmethod
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from visvm.encoders.encoder import Encoder
from visvm.errors import ModelFileError
from visvm.model import changes
from visvm.model import file as model_file
from visvm.model.holder import ModelHolder
from visvm.model.state import Model
from visvm.progress import Progress, silent

if TYPE_CHECKING:
    from visvm.model.portable.writing import Written
    from visvm.model.results import Evaluation


class Exporter(ModelHolder):
    """What has a model, and writes it.

    Attributes
    ----------
    encoder_name : str
        What its encoder is called on this machine.
    """

    encoder_name: str

    @abstractmethod
    def load_encoder(self, progress: Progress = silent) -> Encoder:
        """Return the encoder, loaded when it is first needed."""

    def save(self, path: str | Path, *, undo: bool = True) -> None:
        """Write the model to a file; an old one stays until the new one is whole.

        With `undo` the old one is kept beside it until the next change, with all that was forgotten
        since, so that ``ImageClassifier.undo`` can take the change back.
        """
        model = self._placed()
        if model.sums_on_disk:
            raise ModelFileError(
                "This model was loaded for predicting, without its sums. Load it whole to save it, "
                "or export it.",
                code="sums-missing",
            )
        model_file.write(Path(path), model, keep=undo)

    def export(self, path: str | Path) -> None:
        """Write only what predicting needs: no sums, so it cannot learn, merge or forget."""
        self._known()
        model_file.write(Path(path), changes.for_prediction(self._placed()))

    def export_for_site(self, path: str | Path) -> str:
        """Write what another site needs to learn for this model; return the id of the site.

        That is the encoder's name, mixer, map, λ and blocks; no class, sum or session is in it.
        """
        site = secrets.token_hex(8)
        model_file.write(Path(path), changes.for_site(self._placed(), site))
        return site

    def export_onnx(
        self,
        path: str | Path,
        *,
        precision: str = "float32",
        pixels: str = "uint8",
        top: int = 5,
        head_only: bool = False,
        replaces: bool = True,
    ) -> "Written":
        """Write one ONNX graph, from photos to answers, that runs without visvm.

        Parameters
        ----------
        path : path
            A name that ends in .onnx.
        precision : "float32", "float16" or "int8"
            In which its weights are stored.
        pixels : "uint8" or "float32"
            What it takes: grey levels 0…255, or numbers 0…1.
        top : int, default=5
            How many classes it names.
        head_only : bool, default=False
            Take layer features instead of photos, as of an encoder that has no ONNX graph.
        replaces : bool, default=True
            Whether another file of this name may be replaced.
        """
        from visvm.model.portable.graph import PortableOptions
        from visvm.model.portable.writing import check_name, write_onnx

        options = PortableOptions(precision, pixels, top, head_only)
        check_name(Path(path))
        model = self._known()
        encoder = None if head_only else self.load_encoder()
        return write_onnx(Path(path), model, encoder, options, replaces=replaces)

    def export_web(
        self,
        folder: str | Path,
        *,
        precision: str = "int8",
        top: int = 5,
        teach: bool = False,
        runtime: str | Path | None = None,
        replaces: bool = False,
        progress: Progress = silent,
    ) -> "Written":
        """Write a folder for any web server: a page that asks the model in the browser.

        Parameters
        ----------
        folder : path
        precision, top
            As in ``export_onnx``.
        teach : bool, default=False
            Whether a second page learns new models, in the browser.
        replaces : bool, default=False
            Whether a folder that this has written, and nobody has added to, may be replaced.
        runtime : path, optional
            The npm package onnxruntime-web, as 'npm pack' writes it; fetched by npm by default.
        """
        from visvm.model.portable.graph import PortableOptions
        from visvm.model.portable.runtime import load_runtime
        from visvm.model.portable.web import write_web

        options, model = PortableOptions(precision, top=top, teach=teach), self._known()
        encoder = self.load_encoder(progress)
        shown = load_runtime(progress, None if runtime is None else Path(runtime))
        return write_web(Path(folder), model, encoder, options, shown, replaces=replaces)

    def has_exported(self, path: str | Path, *, for_site: bool = False) -> bool:
        """Whether a file is what ``export`` would write, or ``export_for_site`` under its id."""
        model, path = self._placed(), Path(path)
        with suppress(ModelFileError):  # no such file, or another
            parts = changes.for_prediction(model)
            if for_site:
                parts = changes.for_site(model, model_file.read_header(path).site or "")
            return model_file.holds(path, parts)
        return False

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        sums: bool = False,
        evaluation: "Evaluation | None" = None,
    ) -> None:
        """Write a folder as model hubs have it: the model, and its card.

        Parameters
        ----------
        folder : path
        sums : bool, default=False
            Whether the model there can learn on; features of learned images may be computed from
            its sums.
        evaluation : Evaluation, optional
            How it did on test photos, for the card; by default what its last session was tested
            with.
        """
        from visvm.model.sharing import save_folder

        self._known()
        model = self._placed()
        save_folder(Path(folder), model if sums else changes.for_prediction(model), evaluation)

    def _placed(self) -> Model:
        """Return the model with the name that its encoder has here, as its file is to have it."""
        model = self._settled()
        if model.sums_on_disk:
            return model
        return replace(model, encoder=replace(model.encoder, name=self.encoder_name))
