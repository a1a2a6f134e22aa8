"""What has a model, and says what it knows."""

import copy
from typing import Any, Self, cast

from visvm.model.header import report_as_dict
from visvm.model.labels import Label
from visvm.model.notebook import html_table
from visvm.model.state import MergedSite, Model


class ModelHolder:
    """What has a model.

    Attributes
    ----------
    model_ : Model or None
        All that is remembered, frozen; None before the first session.
    """

    model_: Model | None = None

    @property
    def classes_(self) -> tuple[Label, ...]:
        """The classes known, sorted."""
        return () if self.model_ is None else tuple(self.model_.classes.tolist())

    @property
    def class_counts_(self) -> tuple[int, ...]:
        """How many images of each class were learned."""
        return () if self.model_ is None else self.model_.class_counts

    @property
    def numbers(self) -> bool:
        """Whether the classes are numbers; forgotten ones count as well."""
        return self.model_ is not None and self.model_.numbers

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The reports of all sessions."""
        sessions = () if self.model_ is None else self.model_.sessions
        return [report_as_dict(each) for each in sessions]

    @property
    def site_(self) -> str | None:
        """The id of the site that this model belongs to, if ``export_for_site`` made it."""
        return None if self.model_ is None else self.model_.site

    @property
    def merged_(self) -> tuple[MergedSite, ...]:
        """The sites whose sums were merged into this model."""
        return () if self.model_ is None else self.model_.sites

    @property
    def can_learn(self) -> bool:
        """Whether the sums are there; a model exported or loaded for predicting has none."""
        return self.model_ is None or self.model_.head.sums is not None

    def with_model(self, model: Model | None) -> Self:
        """Return a copy with another model, of the same encoder."""
        twin = copy.copy(self)
        twin.model_ = model
        return twin

    def _repr_html_(self) -> str:
        rows = list(zip(self.classes_, self.class_counts_, strict=True))
        return html_table(repr(self), ["class", "images"], rows)

    # Copies share everything else that a subclass has

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.model_ = copy.deepcopy(self.model_, memo)
        return twin

    @property
    def known_model(self) -> Model:
        """The model, which knows a class; one that knows none is refused."""
        return self._known()

    def _settled(self) -> Model:
        """Return the model, once there is one."""
        if self.model_ is None:
            raise _knows_no_class()
        return self.model_

    def _known(self) -> Model:
        """Return the model, once it knows a class."""
        model = self._settled()
        if not len(model.classes):
            raise _knows_no_class()
        return model


def _knows_no_class() -> Exception:
    from sklearn.exceptions import NotFittedError

    return cast("Exception", NotFittedError("This model knows no class. Let it learn some first."))
