"""``benchmarks/pages.py``."""

from pages import put_section


def test_a_section_takes_the_place_of_its_last_version(tmp_path, capsys):
    page = tmp_path / "PAGE.md"
    page.write_text("# Page\n\nAbout.\n\n## B\n\nold\n\n### Part\n\nold\n")
    put_section(page, "A", ["first"])
    put_section(page, "B", ["new", "", "| table |"])
    assert page.read_text() == "# Page\n\nAbout.\n\n## A\n\nfirst\n\n## B\n\nnew\n\n| table |\n"
    assert capsys.readouterr().out == "first\nnew\n\n| table |\n"
