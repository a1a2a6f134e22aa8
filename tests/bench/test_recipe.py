import re
import tomllib
from pathlib import Path

import pytest

from tests.refusals import refused
from visvm.bench.datasets import DATASETS
from visvm.bench.methods import METHODS
from visvm.bench.recipe import Recipe, built_in, read_recipe
from visvm.bench.report.summary import BASELINES, ORACLE, OURS
from visvm.errors import InputError

RECIPES = Path(__file__).parents[2] / "docs" / "research" / "recipes.md"
BUILT_IN = {*BASELINES, OURS, ORACLE}
WITH_TEXT = {entry.name for entry in METHODS.values() if "text" in entry.needs}
OF_FEATURES = {name for name in BUILT_IN if METHODS[name].needs == ("features",)}
NAMES = [
    *(
        "table1",
        "ablation",
        "sensitivity",
        "class-order-seeds",
        "random-feature-seeds",
        "backbones",
        "forgetting",
    ),
    *(
        "classifier-choice",
        "overhead",
        "trainable-parameters",
        "training-time",
        "smoke",
        "text",
        "diagnosis",
    ),
]


def test_every_analysis_of_the_paper_has_a_recipe():
    assert sorted(built_in()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recipes_name_what_there_is(name):
    recipe = read_recipe(name)
    assert set(recipe.methods) <= set(METHODS)
    assert set(recipe.datasets) <= {*DATASETS, "digits"}
    assert recipe.title
    assert recipe.paper


def test_table_1_has_eighteen_settings():
    recipe = read_recipe("table1")
    assert len(recipe.datasets) * len(recipe.protocols) == 18
    assert set(recipe.methods) >= OF_FEATURES


def test_the_recipe_of_texts_has_every_method_that_needs_them():
    assert set(read_recipe("text").methods) >= WITH_TEXT


def test_sensitivity_varies_one_option_at_a_time_on_validation_images():
    recipe = read_recipe("sensitivity")
    variants = recipe.variants()
    assert recipe.split == "validation"
    assert {"identity_weight": 0.0} in variants
    assert {"n_components": 20000} in variants
    assert len(variants) == 10


def test_the_smoke_test_runs_every_method_that_needs_features_alone():
    assert set(read_recipe("smoke").methods) >= OF_FEATURES


def test_five_seeds_each():
    assert read_recipe("class-order-seeds").class_order_seeds == [1993, 1994, 1995, 1996, 1997]
    assert len(read_recipe("random-feature-seeds").feature_seeds) == 5


def test_a_recipe_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "t"\npaper = "none"\ndatasets = ["x"]\nmethods = ["vis"]\nfeature_seeds = [1, 2]\n'
    )
    assert read_recipe(str(path)) == Recipe(
        "mine", "t", ["x"], ["vis"], "none", feature_seeds=[1, 2]
    )


def test_the_short_recipe_in_the_documentation_is_one(tmp_path):
    _, short = re.findall(r"```toml\n(.*?)```", RECIPES.read_text("utf-8"), re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(short, encoding="utf-8")
    assert len(read_recipe(str(path)).methods) == 3


def test_the_recipe_in_the_documentation_shows_every_field(tmp_path):
    text = (
        RECIPES.read_text("utf-8")
        .split("<!-- read by tests/bench/test_recipe.py -->\n```toml\n")[1]
        .split("```")[0]
    )
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    recipe = read_recipe(str(path))
    assert len(recipe.variants()) == 3
    assert set(Recipe.__struct_fields__) - set(tomllib.loads(text)) == {
        "name",
        "paper",
        "test_per_class",
        "analysis",
    }


START = 'title = "t"\ndatasets = ["x"]\nmethods = ["vis"]\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('title = "t"', "datasets"),
        (START + "feature_seeds = [1.5]", "feature_seeds"),
        (START + "feature_seeds = []", "feature_seeds"),
        (START + "feature_seeds = [true]", "feature_seeds"),
        (START + "class_order_seeds = [-1]", "class_order_seeds"),
        (START + "class_order_seeds = [4294967296]", "class_order_seeds"),
        (START + "options = {ridge = 2026-01-01}", "options"),
        (START + "options = {ridge = nan}", "options"),
        (START + "options = {ridge = {a = 1}}", "options"),
        (START + "vary = {ridge = [1, inf]}", "vary"),
        (START + "vary = {ridge = []}", "vary"),
        (START + 'split = "train"', "split"),
        (START + "train_per_class = 0", "train_per_class"),
        (START + "vary = {a = 1}", "vary"),
        (START + 'options = "x"', "options"),
        (START.replace('"t"', "1"), "title"),
    ],
)
def test_a_wrong_recipe_gets_one_line_that_names_the_mistake(tmp_path, text, named):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with refused("recipe-invalid", InputError) as refusal:
        read_recipe(str(path))
    assert named in str(refusal.value)
    assert "wrong" in str(refusal.value)  # the recipe


@pytest.mark.parametrize("field", ["seed", "name"])
def test_a_field_that_recipes_do_not_have_is_refused(tmp_path, field):
    path = tmp_path / "wrong.toml"
    path.write_text(f"{START}{field} = 'x'")
    with refused("recipe-field-unknown", InputError) as refusal:
        read_recipe(str(path))
    for named in ("wrong", f"'{field}'", "feature_seeds"):
        assert named in str(refusal.value)


def test_unknown_recipes_are_refused(tmp_path):
    with refused("recipe-unknown", InputError) as refusal:
        read_recipe("tabel1")
    assert "ablation" in str(refusal.value)
    with refused("recipe-unreadable", InputError):
        read_recipe(str(tmp_path / "none.toml"))
    (tmp_path / "torn.toml").write_text("title = ")
    with refused("recipe-no-toml", InputError):
        read_recipe(str(tmp_path / "torn.toml"))


def test_changes_take_the_place_of_what_a_recipe_says():
    recipe = read_recipe("table1").with_changes(datasets=["cub200"], methods=None)
    assert recipe.datasets == ["cub200"]
    assert recipe.methods == read_recipe("table1").methods
