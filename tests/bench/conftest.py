import pytest
from matplotlib.figure import Figure


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are made, and their files are empty: for tests of what stands around them."""

    def save(figure, file, **options):
        file.write(b'<svg width="100pt"></svg>')

    monkeypatch.setattr(Figure, "savefig", save)
