"""Which fonts figures are drawn with."""

_WIDE_FONTS = ("Noto Sans CJK JP", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Hiragino Sans")


def fonts() -> list[str]:
    """The font that comes with matplotlib, then those of this machine that have letters it lacks."""
    from matplotlib.font_manager import fontManager

    here = {(font.name, font.weight) for font in fontManager.ttflist}
    # else it is told on every use
    return ["DejaVu Sans", *(name for name in _WIDE_FONTS if {(name, 400), (name, 700)} <= here)]
