"""A page that was exported asks the model in a browser, also without a network."""

import functools
import gzip
import http.server
import json
import os
import shutil
import threading
from pathlib import Path

import onnxruntime
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests import tiny
from tests.end_to_end.process import browser_path
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.errors import ModelFileError, WeightsError
from visvm.head.lift import KernelMap
from visvm.head.solver import solve
from visvm.model.portable import runtime, web
from visvm.progress import silent

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# what stands in for a graphics card
WEBGPU = [
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
]

KEEP_STATUS = """
  window.statuses = [];
  document.addEventListener("DOMContentLoaded", () => {
    const status = document.querySelector("#status");
    const keep = () => window.statuses.push(status.textContent);
    new MutationObserver(keep).observe(status, { childList: true });
  });
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A static host, as any other."""

    extensions_map = {".mjs": "text/javascript", ".js": "text/javascript", ".html": "text/html"}  # noqa: RUF012

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def packed():
    """The runtime, from npm unless it is here."""
    if shutil.which("npm") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("npm is not installed")
    return runtime.load_runtime(silent)


@pytest.fixture
def at_hand(packed, monkeypatch):
    """The runtime, which is not read and checked again for every folder."""
    monkeypatch.setattr(runtime, "load_runtime", lambda *_: packed)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, packed):
    """A folder, and the classifier that it holds."""
    folder = tmp_path_factory.mktemp("web")
    model = tiny.write_model(folder)
    made = model.export_web(folder / "site", teach=True)
    assert made.bytes == sum(each.stat().st_size for each in (folder / "site").iterdir())
    return folder, model


class _Encoding(_Quiet):
    """A host that calls the compression of a file one of the transfer, as some do."""

    def end_headers(self):
        if self.path.endswith(".gz"):
            self.send_header("Content-Encoding", "gzip")
        super().end_headers()


@pytest.fixture
def served(exported, request):
    host = getattr(request, "param", _Quiet)
    handler = functools.partial(host, directory=exported[0] / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def answers(page):
    rows = page.locator("#answers li")
    expect(rows).not_to_have_count(0)
    return [row.splitlines() for row in rows.all_inner_texts()]


def ask(page, path):
    page.locator("#time").evaluate("each => { each.textContent = ''; }")
    page.locator("#file").set_input_files(path)
    expect(page.locator("#time")).to_contain_text("ms", timeout=60_000)
    return answers(page)


def test_the_page_says_what_predict_says_also_without_a_network(exported, served, browser):
    folder, model = exported
    context = browser.new_context(permissions=["camera"])
    context.set_default_timeout(120_000)
    page, asked_for, broken = context.new_page(), [], []
    page.on("request", lambda request: asked_for.append(request.url))
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.add_init_script(KEEP_STATUS)
    address = f"http://127.0.0.1:{served.server_port}/"
    page.goto(address)
    expect(page.locator("#status")).to_have_text("Ready (WebAssembly).", timeout=120_000)
    statuses = page.evaluate("statuses")
    assert any(each.startswith("Loading: ") for each in statuses)
    assert statuses[-2] == "Starting the model."
    expect(page.locator("#some")).to_have_text("Knows 3 classes: blue, green, red.")
    # large as a camera's are, and turned by EXIF
    photos = {path: path for path in sorted((folder / "photos").rglob("*-0.png"))}
    turned = folder / "turned.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(folder / "photos/red/0-1.png").save(turned, exif=exif)
    wanted = {path: model.predict([path])[0] for path in [*photos, turned]}
    for path, answer in wanted.items():
        rows = ask(page, path)
        assert [label for label, *_ in rows] == [label for label, _ in answer.top]
        shares = [float(share.removesuffix(" %")) for _, share in rows]
        assert shares == pytest.approx([100 * share for _, share in answer.top], abs=0.3)
        assert ("None of these" in page.locator("#verdict").inner_text()) == answer.unknown
    page.locator("#camera").click()
    page.locator("#time").evaluate("each => { each.textContent = ''; }")
    page.locator("#shoot").click()
    expect(page.locator("#time")).to_contain_text("ms")
    assert len(answers(page)) == len(model.classes_)
    sides = page.locator("#photo").evaluate("each => [each.naturalWidth, each.naturalHeight]")
    assert sides == page.locator("#video").evaluate("each => [each.videoWidth, each.videoHeight]")
    page.locator("#camera").click()
    expect(page.locator("#video")).to_be_hidden()
    page.evaluate("navigator.serviceWorker.ready")
    found = context.new_cdp_session(page).send("Page.getInstallabilityErrors")
    # manifest, icon and service worker do; the window is a private one
    assert {each["errorId"] for each in found["installabilityErrors"]} <= {"in-incognito"}
    served.shutdown()
    served.server_close()
    page.reload()
    expect(page.locator("#status")).to_have_text("Ready (WebAssembly).", timeout=120_000)
    first = next(iter(photos))
    assert ask(page, first)[0][0] == wanted[first].label
    page.locator("#file").set_input_files(folder / "tiny.onnx")
    expect(page.locator("#status")).to_contain_text("cannot be read as an image")
    context.close()
    assert not broken
    assert all(url.startswith((address, "blob:", "data:")) for url in asked_for)


def test_webgpu_where_there_is_one(exported, served, browser):
    folder, model = exported
    started = browser.browser_type.launch(executable_path=browser_path(), args=WEBGPU)
    page = started.new_page()
    page.goto(f"http://127.0.0.1:{served.server_port}/")
    found = page.evaluate("navigator.gpu?.requestAdapter().then(Boolean)")
    if not found:
        started.close()
        pytest.skip("this browser has no WebGPU")
    expect(page.locator("#status")).to_have_text("Ready (WebGPU).", timeout=120_000)
    photo = sorted((folder / "photos").rglob("*-0.png"))[0]
    (answer,) = model.predict([photo])
    rows = ask(page, photo)
    assert [label for label, *_ in rows] == [label for label, _ in answer.top]
    shares = [float(share.removesuffix(" %")) for _, share in rows]
    assert shares == pytest.approx([100 * share for _, share in answer.top], abs=0.3)
    started.close()


@pytest.mark.parametrize("served", [_Encoding], indirect=True)
def test_the_example(exported, served, browser):
    folder, model = exported
    example = Path(__file__).parents[2] / "examples/ask.html"
    shutil.copy(example, folder / "site")
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{served.server_port}/{example.name}")
    expect(page.locator("#file")).to_be_enabled(timeout=120_000)
    photo = sorted((folder / "photos").rglob("*-0.png"))[0]
    (answer,) = model.predict([photo])
    page.locator("#file").set_input_files(photo)
    expect(page.locator("#said")).to_contain_text(answer.label, timeout=60_000)
    lines = page.locator("#said").inner_text().splitlines()
    assert lines[-len(answer.top) :][0].rpartition(" ")[0].rpartition(" ")[0] == answer.label
    page.close()
    (folder / "site" / example.name).unlink()


def test_a_new_model_is_taught_without_a_server(exported, served, browser, tmp_path):
    folder, _ = exported
    more = tiny.write_photos(tmp_path / "more", ("yellow", "red"), n=6, seed=3)
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(120_000)
    page, broken = context.new_page(), []
    page.on("pageerror", lambda error: broken.append(str(error)))
    address = f"http://127.0.0.1:{served.server_port}/"
    said = json.loads((folder / "site/model.json").read_text())
    said["teach"]["width"] = 5000  # one of the widths that are always offered
    page.route("**/model.json", lambda route: route.fulfill(json=said))
    page.goto(f"{address}teach.html")
    expect(page.locator("#width option")).to_have_text(["2000", "5000"])
    page.unroute("**/model.json")
    page.goto(address)
    page.locator("#teach a").click()
    expect(page.locator("#photos")).to_be_enabled(timeout=120_000)
    drawn = page.evaluate(
        "import('./draw.js').then(({ randomMap }) => [...randomMap(2 ** 40, 3, 5)])"
    )
    assert drawn == KernelMap(3, 5, 2**40).matrix.ravel().tolist()  # to the last bit
    page.locator("#folder").set_input_files(more)
    page.locator("#name").fill("Blau ü")
    page.locator("#photos").set_input_files(sorted((folder / "photos/blue").iterdir()))
    expect(page.locator("#classes li")).to_have_count(3)
    expect(page.locator("#name")).to_have_value("")
    page.locator("#width").select_option("20")  # the model's own, too narrow for so many
    page.locator("#learn").click()
    expect(page.locator("#status")).to_contain_text("at most 13 photos")
    page.locator("#width").select_option("2000")
    page.locator("#learn").click()
    expect(page.locator("#verdict")).to_contain_text("14 photos of 3 classes", timeout=60_000)
    with page.expect_download() as download:
        page.locator("#download").click()
    download.value.save_as(tmp_path / "taught.visvm")
    photo = more / "red/3-0.png"
    page.locator("#file").set_input_files(photo)
    said = answers(page)
    page.locator("#classes button").first.click()
    expect(page.locator("#classes li")).to_have_count(2)
    context.close()
    assert not broken
    taught = ImageClassifier.load(tmp_path / "taught.visvm", cache=False)
    assert taught.model_.counts == {"Blau ü": 2, "red": 6, "yellow": 6}
    assert taught.model_.kind == "whole"
    (answer,) = taught.predict([photo])
    assert [label for label, *_ in said] == [label for label, _ in answer.top]
    shares = [float(share.removesuffix(" %")) for _, share in said]
    assert shares == pytest.approx([100 * share for _, share in answer.top], abs=0.3)
    # the coefficients are those of its sums, and the sums those of its photos
    head = taught.model_.head
    solved = solve(head.statistics, head.settled.ridge, head.settled.options.svm_cost)
    assert head.coefficients == pytest.approx(solved, abs=1e-9)
    taught.save(tmp_path / "copy.visvm")
    taught.forget([photo], ["red"])
    taught.learn([photo], ["red"])
    assert taught.model_.head.coefficients == pytest.approx(solved, abs=1e-6)
    assert taught.learn(folder / "photos").n_classes == 5


def test_without_teaching(exported, at_hand, tmp_path):
    exported[1].export_web(tmp_path / "site")
    assert not [each for each in (tmp_path / "site").iterdir() if "teach" in each.name]
    assert not (tmp_path / "site/settled.visvm").exists()
    linear = ImageClassifier(
        str(exported[0] / "tiny.onnx"), n_components=None, layers=(3,), ridge=1.0, cache=False
    )
    linear.learn(exported[0] / "photos")
    with refused("web-map"):
        linear.export_web(tmp_path / "linear", teach=True)
    assert not (tmp_path / "linear").exists()


def test_again_it_is_done_and_other_folders_stay(exported, at_hand, tmp_path):
    folder, model = exported
    assert model.export_web(folder / "site", teach=True).already_done
    assert model.export_web(folder / "site", top=2, replaces=True).already_done is False
    (folder / "site").rename(folder / ".site.old")  # as a kill between two names leaves it
    assert model.export_web(folder / "site", replaces=True).already_done is False
    assert not (folder / ".site.old").exists()
    with refused("file-exists", ModelFileError):
        model.export_web(folder / "site", top=1, replaces=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with refused("folder-foreign", ModelFileError):
        model.export_web(tmp_path / "mine", replaces=True)
    (tmp_path / "mine/model.json").write_text("{}")
    with refused("folder-foreign", ModelFileError):
        model.export_web(tmp_path / "mine", replaces=True)
    assert len(list((tmp_path / "mine").iterdir())) == 2
    (folder / "site/mine.html").write_text("a page of one's own")
    with refused("folder-foreign", ModelFileError):
        model.export_web(folder / "site", top=1, replaces=True)
    (folder / "site/mine.html").unlink()


def test_into_the_working_folder(exported, at_hand, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    monkeypatch.chdir(tmp_path / "site")
    with refused("folder-foreign", ModelFileError):
        exported[1].export_web(Path(), replaces=True)


def test_files_of_two_exports_have_two_names(exported, at_hand, tmp_path):
    names = set()
    for top in (1, 2):
        exported[1].export_web(tmp_path / str(top), top=top)
        said = json.loads((tmp_path / str(top) / "model.json").read_text())
        names.add(said["files"]["model"])
        assert (tmp_path / str(top) / said["files"]["model"]).stat().st_size == said["bytes"][
            "model"
        ]
        content = gzip.decompress((tmp_path / str(top) / said["files"]["model"]).read_bytes())
        assert len(content) > 1.05 * said["bytes"]["model"]
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        assert session.get_outputs()[2].shape == ["n", top]
    assert len(names) == 2


def test_a_full_disk_leaves_nothing(exported, at_hand, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(web, "written", full)
    with refused("file-unwritable", ModelFileError):
        exported[1].export_web(tmp_path / "site")
    assert not [each for each in tmp_path.iterdir() if not each.name.endswith(".lock")]


def test_a_runtime_that_was_changed_in_the_cache_is_not_used(packed, tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path))
    folder = tmp_path / "runtime" / f"{runtime.PACKAGE}-{runtime.VERSION}"
    folder.mkdir(parents=True)
    monkeypatch.setattr(runtime.shutil, "which", lambda _: None)
    other = gzip.compress(b"other")
    for module, wasm, whole in (
        (packed.module, packed.wasm, True),
        (packed.module + b" ", packed.wasm, False),
        (packed.module, other, False),
        (packed.module, packed.wasm[:-99], False),
        (packed.module, b"other", False),
    ):
        (folder / runtime.MODULE).write_bytes(module)
        (folder / f"{runtime.WASM}.gz").write_bytes(wasm)
        if whole:
            assert runtime.load_runtime(silent) == packed
        else:
            with refused("runtime-missing", WeightsError):
                runtime.load_runtime(silent)


def test_a_runtime_that_cannot_be_had_or_is_another(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    with refused("runtime-missing", WeightsError):
        runtime.load_runtime(silent, tmp_path / "none.tgz")
    (tmp_path / "other.tgz").write_bytes(b"other")
    with refused("runtime-mismatch", WeightsError):
        runtime.load_runtime(silent, tmp_path / "other.tgz")
    for endless in (Path("/dev/zero"), tmp_path / "pipe"):
        if os.name == "posix":
            endless.exists() or os.mkfifo(endless)
            with refused("runtime-missing", WeightsError):
                runtime.load_runtime(silent, endless)
    monkeypatch.setattr(runtime.shutil, "which", lambda _: None)
    with refused("runtime-missing", WeightsError):
        runtime.load_runtime(silent)
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr(runtime.shutil, "which", lambda _: str(npm))
    with refused("runtime-missing", WeightsError):
        runtime.load_runtime(silent)
    npm.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(runtime, "_PATIENCE", 0.2)
    with refused("runtime-missing", WeightsError):
        runtime.load_runtime(silent)
    assert not (tmp_path / "cache").exists()
