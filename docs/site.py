"""What `mkdocs build` adds to the pages in docs/: the program's own reference, and other documents.

Every page is Markdown that GitHub shows as well: links lead to files of the repository, and
equations are TeX (```math, and $`…`$ within a line). Here links to files that are pages lead there,
all others to the repository, and equations become MathML, which needs neither script nor network.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCUMENTS = {  # pages whose text is a file elsewhere in the repository
    "research/results.md": "RESULTS.md",
    "research/reproducibility.md": "REPRODUCIBILITY.md",
    "understand/security.md": "SECURITY.md",
    "reference/contributing.md": "CONTRIBUTING.md",
    "reference/changelog.md": "CHANGELOG.md",
    **{
        f"research/measurements/{path.stem.lower().replace('_', '-')}.md": f"benchmarks/{path.name}"
        for path in sorted((ROOT / "benchmarks").glob("*.md"))
    },
}
_FENCE = re.compile(r"^( *)(```+|~~~+)[^\n]*\n.*?^\1\2[`~]*$\n?", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]*)(#[^)\s]*)?(?=[)\s])")
_MATH = re.compile(r"\$`([^`]+)`\$")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents, what the program says of itself, and the pictures of all of them."""
    for place, name in DOCUMENTS.items():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, place, content=text))
        for picture in re.findall(r"!\[[^\]]*\]\(([\w./-]+)\)", text):
            source = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(name), picture))
            target = posixpath.join(posixpath.dirname(place), picture)
            if files.get_file_from_path(posixpath.normpath(target)) is None:
                picture_file = File.generated(
                    config, posixpath.normpath(target), content=source.read_bytes()
                )
                files.append(picture_file)
    for place, write in GENERATED.items():
        files.append(File.generated(config, place, content=write()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links and equations into those of a site; code is left as it is."""
    place = page.file.src_uri
    page.meta |= _settings(place)
    pages = {document: uri for uri, document in DOCUMENTS.items()}
    pages |= {f"docs/{file.src_uri}": file.src_uri for file in files}
    here = posixpath.dirname(DOCUMENTS.get(place, f"docs/{place}"))

    def link(found: re.Match[str]) -> str:
        before, address, anchor = found[1], found[2], found[3] or ""
        if not address or ":" in address:
            return found[0]
        target = posixpath.normpath(posixpath.join(here, address))
        if target in pages:
            address = posixpath.relpath(pages[target], posixpath.dirname(place) or ".")
        elif not before.startswith("!") and (ROOT / target).exists():
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            address = f"{config.extra['repository']}/{kind}/main/{target}"
        return f"{before}{address}{anchor}"

    def prose(text: str) -> str:
        text = _LINK.sub(link, text)
        return _MATH.sub(lambda found: convert(found[1]), text)

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts.append(prose(markdown[end : fence.start()]))
        code = fence[0]
        if code.lstrip().startswith("```flow"):
            code = flow()
        if code.lstrip().startswith("```math"):
            equation = "\n".join(code.strip().splitlines()[1:-1])
            code = f'<div class="equation">{convert(equation, display="block")}</div>\n'
        parts.append(code)
        end = fence.end()
    return "".join([*parts, prose(markdown[end:])])


def _settings(place: str) -> dict[str, Any]:
    """Give answers before measurements to those who search, and room to the widest table."""
    if place.startswith("research/measurements"):
        return {"search": {"boost": 0.3}}
    if place.startswith(("start/", "how-to/")):
        return {"search": {"boost": 3}}
    return {"hide": ["navigation"]} if place == "research/results.md" else {}


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep the name of an option on one line."""
    del page, config, files
    return re.sub(r"<code>(--[\w-]+)</code>", r'<code class="option">\1</code>', html)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Take the part of the search that Material loads from elsewhere from the site itself."""
    del config
    return _own_search(output, posixpath.relpath("assets", posixpath.dirname(page.url) or "."))


def on_post_template(output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
    """Do so in the page for addresses that are not there: it may stand at any depth."""
    del template_name
    return _own_search(output_content, f"{config.site_url}assets")


def _own_search(page: str, assets: str) -> str:
    return page.replace("https://unpkg.com/iframe-worker/shim", f"{assets}/iframe-worker.js")


_FLOW = (  # two boxes a row: name, what it gives, whether a model file keeps it
    (("picture", "x", False), ("encoder", "frozen: h₁ … h₁₂", False)),
    (("mixer", "trained once: u", True), ("kernel map", "φ = max(0, uR)", True)),
    (("sums", "added up: G, Q", True), ("solution", "W", True)),
    (None, ("answer", "φ W", False)),
)
_ASKING = "M410 154h24v218h-20"  # from the kernel map past sums and solution


def flow() -> str:
    """Draw the data's way, as SVG in the colours of the page; wide enough for a phone to read."""
    boxes, paths = [], [_ASKING]
    for row, pair in enumerate(_FLOW):
        for column, box in enumerate(pair):
            if box is None:
                continue
            (name, what, kept), x, y = box, 10 + column * 220, 10 + row * 110
            fill = "var(--md-primary-fg-color)" if kept else "var(--md-code-bg-color)"
            ink = "#fff" if kept else "currentColor"
            boxes.append(
                f'<rect x="{x}" y="{y}" width="180" height="72" rx="10" fill="{fill}"/>'
                f'<g fill="{ink}" text-anchor="middle"><text x="{x + 90}" y="{y + 31}" '
                f'font-size="19" font-weight="600">{name}</text>'
                f'<text x="{x + 90}" y="{y + 55}" font-size="16">{what}</text></g>'
            )
            if column == 0:
                paths.append(f"M{x + 184} {y + 36}h30")
    paths += [f"M320 {y}v18H100v12" for y in (86, 196)] + ["M320 306v28"]
    drawn = "".join(f'<path d="{path}" marker-end="url(#tip)"/>' for path in paths)
    return (
        '<svg class="flow" viewBox="0 0 444 424" role="img" aria-label="Picture, encoder, mixer, '
        'kernel map, sums, solution; a question goes from the kernel map to the answer"><defs>'
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
        f'<g fill="none" stroke="currentColor" stroke-width="1.5">{drawn}</g>'
        f"{''.join(boxes)}</svg>\n"
    )


def command_line() -> str:
    """Write a section for each command, from what ``--help`` shows."""
    from visvm.cli.main import app

    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="visvm")
    lines = ["# Command line", "", _COMMAND_LINE, ""]
    panels: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        panel = getattr(command, "rich_help_panel", None) or "Others"
        panels.setdefault(str(panel), []).append(name)
    for panel, names in panels.items():
        lines += [f"## {panel}", ""]
        for name in names:
            for path, command in _leaves(f"visvm {name}", group.commands[name]):
                lines += _command(path, command, context)
    return "\n".join(lines)


_COMMAND_LINE = """\
Generated from the program: it is what `--help` of each command shows.

Every command ends with 0, with 2 and one clear line on standard error for anything you can put
right, or with 130 after Ctrl-C. Commands that answer with data have `--json`; a mistake is then
also `{"error": {"code": …, "message": …}}` on standard output.

| variable | what it sets |
|---|---|
| `VISVM_CACHE` | the folder of weights and cached features |
| `VISVM_CACHE_LIMIT` | how large the features may grow (5 GiB) |
| `VISVM_DATA` | the folder of the benchmark's data sets |
| `VISVM_TOKEN`, `VISVM_READ_TOKEN` | the tokens of `visvm serve` |
| `VISVM_UNDO=off` | keeps no file from before the last change |
| `VISVM_PROGRESS=off` | draws no progress bars |
| `VISVM_JOURNAL_SECONDS` | how often a long `learn` keeps its sums (180) |
"""


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _leaves(f"{path} {name}", each)
    else:
        yield path, command


def _command(path: str, command: Any, context: Any) -> list[str]:
    inside = command.context_class(command, info_name=path.split(" ", 1)[1], parent=context)
    usage = " ".join(command.collect_usage_pieces(inside))
    lines = [f"### {path}", "", "```text", f"{path} {usage}", "```", ""]
    lines += [_plain(command.help or ""), ""]
    rows = [_parameter(each, inside) for each in command.get_params(inside)]
    wanted = [row for row in rows if row is not None]
    if wanted:
        lines += ["| | |", "|---|---|"]
        lines += [f"| {name} | {text} |" for name, text in wanted]
    return [*lines, ""]


def _parameter(parameter: Any, context: Any) -> tuple[str, str] | None:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return None
    if parameter.param_type_name == "argument":
        name = (parameter.metavar or parameter.name.upper()).strip("[]")
        return f"`{name}`".replace("|", "\\|"), _cell(parameter.help or "")
    record = parameter.get_help_record(context)
    if record is None:
        return None
    return f"`{record[0]}`".replace("|", "\\|"), _cell(record[1])


def _plain(text: str) -> str:
    return re.sub(r"(?<!`)(--[a-z][\w-]*)", r"`\1`", text.replace("\f", "")).strip()


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("\n", " ")


def http() -> str:
    """Write a section for each address, from the service's OpenAPI document."""
    from visvm.service.app import create_app
    from visvm.service.gate import Tokens
    from visvm.service.limits import Limits

    service: Any = SimpleNamespace(limits=Limits(), metrics=None)
    document = create_app(service, Tokens(None, None)).openapi()
    lines = ["# HTTP", "", _HTTP, ""]
    for address, methods in document["paths"].items():
        for method, what in methods.items():
            lines += [f"## {method.upper()} {address}", "", what.get("description", ""), ""]
            lines += _fields(what, document)
    return "\n".join(lines)


_HTTP = """\
Generated from the OpenAPI document of `visvm serve`, which the service itself gives at
`/openapi.json`. Where `VISVM_TOKEN` is set, send it as `Authorization: Bearer …`. Refusals are
[RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) problems with the [codes](errors.md) and
sentences of the command line; `503` comes with `Retry-After`.
"""


def _fields(what: dict[str, Any], document: dict[str, Any]) -> list[str]:
    rows = [
        (each["name"], f"in the {each['in']}", each["schema"], each.get("required", False))
        for each in what.get("parameters", ())
    ]
    for kind, body in what.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(body["schema"], document)
        wanted = schema.get("required", ())
        rows += [
            (name, kind, each, name in wanted)
            for name, each in schema.get("properties", {}).items()
        ]
    lines = []
    if rows:
        lines += ["| field | where | what |", "|---|---|---|"]
        for name, where, schema, required in rows:
            said = _resolved(schema, document)
            text = said.get("description", said.get("title", ""))
            must = "required. " if required else ""
            lines.append(f"| `{name}` | {where} | {_cell(must + text)} |")
        lines.append("")
    for status, answer in what["responses"].items():
        if status.startswith("2"):
            kinds = ", ".join(f"`{kind}`" for kind in answer.get("content", {})) or "nothing"
            lines += [f"Answer {status}: {answer['description']} ({kinds})", ""]
            for body in answer.get("content", {}).values():
                properties = _resolved(body.get("schema", {}), document).get("properties", {})
                if properties:
                    lines += ["Fields: " + ", ".join(f"`{name}`" for name in properties), ""]
    return lines


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        for part in ("", *schema["$ref"].split("/")[1:]):
            schema = document if not part else schema[part]
    return schema


def errors() -> str:
    """Write the tree of exceptions, and every code."""
    import visvm.errors

    codes = (ROOT / "tests/data/error_codes.txt").read_text("utf-8").split()
    tree = visvm.errors.__doc__ or ""
    start = tree.index("    VisvmError")
    drawn = tree[start : tree.index("\n\n", start)]
    listed = ", ".join(f"`{code}`" for code in codes)
    return (
        f"# Errors\n\n{_ERRORS}\n```text\n{drawn}\n```\n\n## All {len(codes)} codes\n\n{listed}\n"
    )


_ERRORS = """\
Every error is one line: the fact, then the remedy. It has a stable code, which `--json` and HTTP
problems carry; sentences may change, codes do not. Whatever raises one of these has changed
nothing.
"""


def measurements() -> str:
    """List the pages that benchmarks write."""
    lines = ["# Measurements", "", "Each page is written by the command that it names.", ""]
    for name in DOCUMENTS.values():
        if name.startswith("benchmarks/"):
            title = (ROOT / name).read_text("utf-8").splitlines()[0].lstrip("# ")
            lines.append(f"- [{title}](../../{name})")
    return "\n".join(lines) + "\n"


GENERATED: dict[str, Callable[[], str]] = {
    "reference/command-line.md": command_line,
    "reference/http.md": http,
    "reference/errors.md": errors,
    "research/measurements.md": measurements,
}
