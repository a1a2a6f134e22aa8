"""``visvm bench`` and ``visvm report`` as a person uses them."""

import json
import shutil

import pytest

from tests.cli.test_main import refused
from tests.tiny import COLOURS, write_encoder, write_photos
from visvm.bench.estimate import estimate
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Entry
from visvm.bench.plan import plan
from visvm.bench.recipe import Recipe, read_recipe
from visvm.bench.rows import FILE_NAME, read_rows
from visvm.encoders.loading import load_encoder
from visvm.errors import EncoderError
from visvm.progress import silent

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VISVM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def bench(visvm, tmp_path):
    encoder = write_encoder(tmp_path)
    for part, seed in (("train", 0), ("test", 1)):
        write_photos(tmp_path / "colours" / part, tuple(COLOURS), 6, seed)
    given = {
        "--datasets": "colours",
        "--encoder": encoder,
        "--protocol": "B0 Inc2",
        "--components": 30,
        "--out": "out",
    }

    def run(*arguments, **changes):
        options = {
            **given,
            **{f"--{name.replace('_', '-')}": value for name, value in changes.items()},
        }
        return visvm(
            "bench",
            *arguments,
            *(part for pair in options.items() if pair[1] is not None for part in pair),
        )

    return run


def test_bench_and_report(bench, visvm, tmp_path):
    code, out, err = bench("table1", methods="simplecil,vis")
    assert code == 0
    assert "visvm report out" in out
    assert "vis n_components=30 seed 0  Ā" in err
    rows = read_rows(tmp_path / "out")
    assert [(row.run.method, row.session) for row in rows] == [
        ("simplecil", 1),
        ("simplecil", 2),
        ("vis", 1),
        ("vis", 2),
    ]
    code, out, _ = visvm("report", "out")
    assert code == 0
    assert out.split() == ["out/report.html", "out/report.md"]
    assert "simplecil" in (tmp_path / "out" / "report.md").read_text()


def test_without_a_recipe_they_are_listed(visvm):
    code, out, _ = visvm("bench")
    assert code == 0
    assert "table1" in out
    assert "smoke" in out


@pytest.mark.parametrize(
    "options", [["--methods", "vis"], ["--dry-run"], ["--components", 30, "--out", "here"]]
)
def test_options_without_a_recipe_are_refused(visvm, options):
    refused(visvm("bench", *options), options[0], "recipe", code="recipe-missing")


def test_options_change_what_is_run(bench, tmp_path):
    bench(
        "ablation",
        methods="vis",
        seeds="1,2",
        feature_seeds="7",
        train_per_class=5,
        test_per_class=2,
        quiet=None,
    )
    rows = read_rows(tmp_path / "out")
    assert {(row.run.class_order_seed, row.run.seed) for row in rows} == {(1, 7), (2, 7)}
    assert {(row.n_train, row.n_test) for row in rows} == {(10, 4), (10, 8)}
    assert {row.run.options["n_components"] for row in rows} == {30}


def test_dry_run_tells_the_cost_and_does_nothing(bench, tmp_path):
    code, out, _ = bench("table1", "--dry-run")
    assert code == 0
    assert "12 of 12" in " ".join(out.split())
    assert "48 of 48" in " ".join(out.split())
    assert "nothing was run" in out
    assert not (tmp_path / "out").exists()
    bench("table1", methods="simplecil", components=None)
    _, out, _ = bench("table1", "--dry-run")
    assert "11 of 12" in " ".join(out.split())
    assert "0 of 48" in " ".join(out.split())


def test_dry_run_warns_of_too_little_memory(bench, monkeypatch):
    code, _, err = bench("table1", "--dry-run")
    assert (code, err) == (0, "")
    monkeypatch.setattr("visvm.head.memory.available_bytes", lambda: 1_000_000)
    code, _, err = bench("table1", "--dry-run")
    assert (code, err) == (
        0,
        "only 976.6 KiB are free: take a smaller --components, or a machine with more memory\n",
    )


@pytest.mark.parametrize("encoder", ["dinov2-s14", "nobody/nothing-of-this-name"])
def test_dry_run_fetches_nothing(bench, encoder, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(
        "visvm.encoders.loading.load_encoder", lambda *_: pytest.fail("was loaded, or fetched")
    )
    refused(bench("table1", "--dry-run", encoder=encoder), encoder)


def test_a_method_that_cannot_run_is_left_out_unless_it_is_asked_for(bench):
    code, _, err = bench("ablation", components=20)
    assert code == 0
    assert "zs-clip is left out" in err
    for more in ([], ["--dry-run"]):
        refused(bench("ablation", *more, methods="zs-clip,vis"), "give --text FILE")


def test_quiet_says_nothing(bench):
    assert bench("table1", "--quiet", methods="simplecil", components=None) == (0, "", "")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"methods": "viss"}, "viss"),
        ({"datasets": "cub2000"}, "cub2000"),
        ({"protocol": "B0 Inc50"}, "4 classes"),
        ({"protocol": "B0 Inc0"}, "number after Inc"),
        ({"seeds": "1,x"}, "--seeds"),
        ({"seeds": "4294967296"}, "--seeds"),
        ({"methods": " , "}, "--methods"),
        ({"datasets": ""}, "--datasets"),
        ({"encoder": "dinov9"}, "dinov9"),
        ({"components": "0"}, "--components"),
        (
            {"methods": "simplecil,slda"},
            "--components sets D, which simplecil, slda do not have",
        ),
        ({"datasets": "cub200"}, "VISVM_DATA"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(bench, changes, named, tmp_path):
    refused(bench("table1", **changes), named)
    assert not (tmp_path / "out").exists()


def test_unknown_recipe_and_folder(bench, visvm):
    refused(bench("table9"), "table9", "ablation")
    refused(visvm("report", "nowhere"), "nowhere", FILE_NAME)


def test_smoke_runs_every_method_on_the_digits(visvm, tmp_path):
    code, _, err = visvm("bench", "smoke", "--encoder", write_encoder(tmp_path), "--out", "~/out")
    assert (code, (tmp_path / "out").exists()) == (0, True), err
    assert {row.run.method for row in read_rows(tmp_path / "out")} == set(
        read_recipe("smoke").methods
    )
    assert visvm("report", "~/out")[0] == 0


def test_a_failing_run_is_named_in_the_end(bench, tmp_path):
    """RanPAC cannot learn a session of one image; the others can."""
    refused(
        bench(
            "table1",
            "--quiet",
            methods="ranpac-head,simplecil",
            train_per_class=1,
            protocol="B0 Inc1",
        ),
        "ranpac-head",
    )
    assert {row.run.method for row in read_rows(tmp_path / "out")} == {"simplecil"}


def test_what_a_method_raises_does_not_cost_the_others(bench, tmp_path, monkeypatch):
    class Broken:
        def __init__(self, setup):
            pass

        def learn(self, features, labels):
            raise TypeError("of\nits author's making")

    class Stillborn:
        def __init__(self, setup):
            raise KeyError("early")

    for name, kind in (("broken", Broken), ("stillborn", Stillborn)):
        monkeypatch.setitem(METHODS, name, Entry(name, kind))
    code, out, err = bench("table1", methods="broken,stillborn,simplecil", components=None)
    assert code == 2
    for said in (
        "TypeError: of its author's making",
        "test_bench.py",
        "in learn",
        "KeyError: 'early'",
        "Runs failed: 2",
    ):
        assert said in err
    assert "Traceback" not in out + err
    assert {row.run.method for row in read_rows(tmp_path / "out")} == {"simplecil"}


def test_test_images_inside_the_training_images_are_told(bench, tmp_path):
    shutil.copy(
        next((tmp_path / "colours" / "train" / "red").iterdir()),
        tmp_path / "colours" / "test" / "red" / "again.png",
    )
    assert (
        "1 of 25 test images of colours are training images too"
        in bench("table1", methods="simplecil", components=None)[2]
    )
    assert {row.n_shared for row in read_rows(tmp_path / "out")} == {1}


def test_rows_of_another_revision_are_named_and_rows_of_other_code_are_not(bench, tmp_path):
    bench("table1", methods="simplecil", components=None)
    path = tmp_path / "out" / FILE_NAME
    text = path.read_text()
    path.write_text(text.replace(read_rows(tmp_path / "out")[0].code_digest, "c0de"))
    _, out, err = bench("table1", "--dry-run", methods="simplecil", components=None)
    assert "0 of 1" in " ".join(out.split())
    assert "revision" not in err
    path.write_text(text.replace('"revision":1,', '"revision":7,'))
    for arguments in (["table1", "--dry-run"], ["table1"]):
        assert (
            "1 of 1 runs on colours are of another revision"
            in bench(*arguments, methods="simplecil", components=None)[2]
        )
    assert "revision" not in bench("table1", methods="simplecil", components=None)[2]


def test_a_run_that_goes_on_tells_its_average(bench, tmp_path):
    said = bench("table1", methods="simplecil", components=None)[2].splitlines()[-1]
    path = tmp_path / "out" / FILE_NAME
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert bench("table1", methods="simplecil", components=None)[2].splitlines()[-1] == said
    assert "Ā" in said


def test_what_is_missing_is_named_all_at_once(bench, tmp_path):
    (tmp_path / "cars").mkdir()
    line = refused(bench("table1", "--dry-run", datasets="cars,cub200,colours,sun397", data="."))
    assert "cub200, sun397" in line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'options = { n_components = "many" }',
            "'n_components' parameter of vis must be a whole number of at least 1. Got 'many'",
        ),
        (
            "options = { n_components = -5 }",
            "'n_components' parameter of vis must be a whole number of at least 1. Got -5",
        ),
        (
            "options = { epochs = 0 }",
            "'epochs' parameter of vis must be a whole number of at least 1. Got 0",
        ),
        (
            'split = "validation"\ntrain_per_class = 1',
            "A class has a single training image",
        ),
    ],
)
def test_what_would_fail_is_one_line_in_the_plan_too(bench, tmp_path, line, said):
    (tmp_path / "mine.toml").write_text(
        f'title = "t"\ndatasets = ["colours"]\nmethods = ["vis"]\n{line}\n'
    )
    assert said in refused(bench("mine.toml", "--dry-run", components=None))
    assert bench("mine.toml", components=None)[0] == 2


def test_classes_that_come_in_no_session_are_told(bench):
    said = "sessions 1,2 of colours leaves 1 of its 4 classes out"
    for more in ([], ["--dry-run"]):
        assert (
            said
            in bench(
                "table1", *more, methods="simplecil", components=None, protocol="sessions 1,2"
            )[2]
        )


def test_an_encoder_that_cannot_be_had_is_named(bench, monkeypatch):
    def fail(name, *_):
        raise EncoderError("this encoder needs torch")

    monkeypatch.setattr("visvm.encoders.loading.load_encoder", fail)
    assert "encoder owner/model: this encoder needs torch" in refused(
        bench("table1", encoder="owner/model")
    )


def test_features_that_outgrow_the_cache_are_told(bench, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE_LIMIT", "1K")
    assert "VISVM_CACHE_LIMIT" in bench("table1", methods="simplecil", components=None)[2]


def test_estimates_grow_with_what_there_is_to_do(tmp_path):
    write_encoder(tmp_path)
    for part, seed in (("train", 0), ("test", 1)):
        write_photos(tmp_path / "colours" / part, tuple(COLOURS), 30, seed)

    def cost(method, width, n=30, **options):
        recipe = Recipe(
            "r",
            "",
            [str(tmp_path / "colours")],
            [method],
            "",
            ["B0 Inc2"],
            [str(tmp_path / "tiny.onnx")],
        )
        changed = recipe.with_changes(options={"n_components": width, **options}, train_per_class=n)
        (group,) = plan(changed, None, load_encoder, silent)
        return estimate(group, group.runs[0], 1e9)

    assert cost("vis", 4000).seconds > cost("vis", 2000).seconds > cost("vis", 2000, n=10).seconds
    assert (
        cost("vis", 4000).seconds
        > cost("visual-lssvm+kernel", 4000).seconds
        > cost("visual-lssvm", 4000).seconds
    )
    assert cost("ridge", 4000) == cost("vis", 4000)
    assert cost("vis", 4000, epochs=50).seconds > cost("vis", 4000).seconds
    assert cost("vis-oracle", 4000).seconds > cost("vis", 4000).seconds
    assert (
        cost("ranpac-head", 4000).n_bytes > 8 * 4000**2 > cost("visual-lssvm+kernel", 4000).n_bytes
    )


def test_rows_are_plain_json(bench, tmp_path):
    bench("table1", methods="slda", components=None)
    for line in (tmp_path / "out" / FILE_NAME).read_text().splitlines():
        said = json.loads(line)
        assert {
            "run",
            "session",
            "accuracy",
            "group_accuracy",
            "seconds",
            "peak_memory",
            "environment",
        } <= said.keys()
