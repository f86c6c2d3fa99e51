"""Choices: who decides what a kernel is made with, and tables of it as text."""

from __future__ import annotations

import gc
import tomllib
import weakref
from dataclasses import replace
from itertools import product as every
from pathlib import Path

import pytest

from genesis.codegen.cuda.choice_table import Key, Malformed, Row, Rows, parsed
from genesis.codegen.cuda.choices import SHIPPED, Candidate, Taken, choose, deciding, noting, shipped, size_class
from genesis.codegen.cuda.emit import emit, emit_anew
from genesis.codegen.cuda.gpu_model import H200, MODELS, GpuModel
from genesis.codegen.cuda.templates.attention_choice import FORMS, GRID, PRODUCTS, AttentionTile, Problem, tile_for
from genesis.codegen.cuda.templates.product_choice import Product, choose_product, streamed_forms
from genesis.codegen.cuda.templates.streamed_matmul import Form, forms_for
from genesis.ir import Graph
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.size_trace import Trace
from genesis.ir.types import bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.groups import Group
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import inputs

ROOT = Path(__file__).resolve().parents[3]

CANDIDATES = [Candidate("32x32", 1, 5.0), Candidate("64x64", 2, 4.0), Candidate("128x64", 3, 3.0)]
WORDS = {"dot": "half", "rows": 16, "depth": 64}
KEY = Key("product", "dot=half rows=16 depth=64")


def taken(rows: Rows | None = None, forced: dict[Key, str] | None = None) -> tuple[int, str]:
    """What is chosen, and by whom."""
    with deciding(rows, forced), noting() as found:
        value = choose("product", WORDS, H200, CANDIDATES[0], lambda: CANDIDATES[1:])
    return value, found[0].by


def product(rows: int = 64, depth: int = 96, columns: int = 128) -> Group:
    """A product's group."""
    x, w = inputs((rows, depth), (depth, columns), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x, w), (matmul(x, w),)))).groups
    return group


def taken_for(group: Group, gpu: GpuModel = H200) -> Taken:
    """What a group's kernel is made with."""
    with noting() as found:
        source = emit_anew(group, gpu)
    taken, = found
    assert source.choices == (taken.text,)
    return taken


def test_without_a_row_the_models_first_is_taken() -> None:
    assert taken() == (1, "model")
    assert taken(Rows([Row(Key("rows", ""), "64x64")])) == (1, "model"), "of another kind of template"
    assert taken(Rows([Row(Key("product", "rows=32"), "64x64")])) == (1, "model"), "of another problem"


def test_a_users_row_goes_before_what_is_shipped_and_what_is_tried_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genesis.codegen.cuda.choices.shipped", lambda: {H200.name: Rows([Row(KEY, "64x64")])})
    assert taken() == (2, "shipped")
    rows = Rows([Row(KEY, "128x64")])
    assert taken(rows) == (3, "tuned")
    assert taken(rows, {KEY: "32x32"}) == (1, "forced")


def test_a_row_counts_where_the_problem_has_its_candidate() -> None:
    assert taken(Rows([Row(KEY, "256x256")])) == (1, "model")
    assert taken(Rows([Row(KEY, "256x256"), Row(Key("product", "rows=16"), "64x64")])) == (2, "tuned")


def test_of_two_rows_the_one_that_says_more_of_the_problem_counts() -> None:
    rows = [Row(Key("product", "dot=half rows=16"), "128x64"), Row(Key("product", "dot=half"), "64x64"),
            Row(Key("product", ""), "32x32")]
    assert taken(Rows(rows)) == taken(Rows(reversed(rows))) == (3, "tuned")


def test_a_gpu_without_rows_takes_the_h200s(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {H200.name: Rows([Row(KEY, "64x64")]), MODELS["l4"].name: Rows([Row(KEY, "128x64")])}
    monkeypatch.setattr("genesis.codegen.cuda.choices.shipped", lambda: tables)
    found = {name: choose("product", WORDS, MODELS[name], CANDIDATES[0], lambda: CANDIDATES[1:])
             for name in ("a100", "l4", "h200")}
    assert found == {"a100": 2, "l4": 3, "h200": 2}


def test_a_row_that_is_there_stays() -> None:
    rows = Rows([Row(KEY, "64x64")])
    before = rows.digest
    rows.add(Row(KEY, "32x32"))
    assert [row.candidate for row in rows] == ["64x64"] and rows.digest == before


def test_the_digest_follows_what_is_decided_and_not_times() -> None:
    assert Rows([Row(KEY, "64x64", 1.0)]).digest == Rows([Row(KEY, "64x64", 2.0)]).digest
    assert Rows([Row(KEY, "64x64")]).digest != Rows([Row(KEY, "32x32")]).digest != Rows().digest


def test_a_table_is_read_as_it_is_written() -> None:
    rows = Rows([Row(KEY, "64x64 warps=4", 12.5, 13.0), Row(Key("product", "dot=half"), "32x32"),
                 Row(Key("attention", "head=64"), "64x64", 0.1)])
    text = f"# a comment\n[NVIDIA L4]\n\n{rows.text}"
    assert list(parsed(text)["NVIDIA L4"]) == list(rows)
    assert [row.key for row in rows] == sorted(row.key for row in rows)


@pytest.mark.parametrize(("text", "problem"), [
    ("product | a=1 | 64x64 | - | -", "line 1 is before the first GPU's name"),
    ("[L4]\nproduct | a=1 | 64x64", "line 2 is no row of five parts"),
    ("[L4]\nproduct | | 64x64 | - | -", "line 2 is no row of five parts"),
    ("[L4]\nproduct | a=1 | 64x64 | fast | -", "line 2 has a time that is no number")])
def test_a_line_that_is_none_is_told(text: str, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        parsed(text)


def test_classes_of_sizes_are_a_quarter_of_an_octave_at_most() -> None:
    for size in (*range(1, 300), 4095, 4096, 4097, 50304):
        found = size_class(size)
        assert size <= found <= max(size * 1.25 + 1, 4) and size_class(found) == found


def test_the_shipped_table_names_candidates_that_there_are() -> None:
    """A row that names none would decide nothing, and nobody would see it."""
    tiles = {tile.name for tile in GRID}
    known = {"streamed_attention": {form.name for form in FORMS}, **dict.fromkeys(PRODUCTS, tiles),
             "product": {form.name for form in forms_for(bfloat16)}}
    for gpu, rows in shipped().items():
        assert gpu in {model.name for model in MODELS.values()} and len(rows)
        for row in rows:
            assert row.candidate in known[row.key.kind], row.text


def test_the_shipped_tables_rows_are_sorted() -> None:
    lines = [line for line in SHIPPED.read_text().splitlines() if "|" in line and not line.startswith("#")]
    assert lines == [row.text for rows in shipped().values() for row in rows], "sorted, and as rows are written"


def test_attentions_tiles_are_those_that_were_measured() -> None:
    measured = {("flash_attention", 128): (64, 64, 4, 3), ("flash_attention_dq", 128): (128, 64, 8, 3),
                ("flash_attention_dkv", 80): (64, 64, 4, 2), ("flash_attention_dkv", 256): (64, 32, 4, 2)}
    for (op, head), tile in measured.items():
        for gpu, causal in every((H200, MODELS["a100"]), (True, False)):
            problem = Problem(op, bfloat16, 96, 1024, 1024, head, causal, False)
            assert tile_for(problem, gpu) == AttentionTile(*tile)


@pytest.mark.parametrize(("head", "tile"), [(16, (64, 32, 8, 2)), (128, (32, 32, 8, 2)), (256, (16, 32, 8, 1))])
def test_float32_attention_has_tiles_whose_sums_fill_the_same_registers(head: int, tile: tuple[int, ...]) -> None:
    problem = Problem("flash_attention_dq", float32, 96, 1024, 1024, head, True, False)
    assert tile_for(problem, H200) == AttentionTile(*tile)


def test_a_kernel_notes_what_it_was_made_with() -> None:
    choice = taken_for(product())
    assert choice.by == "model" and choice.text == "product 64x64x64 warps=4 stages=4, by the model"
    rows = Rows([Row(choice.choice.key, "64x128x64 warps=4 stages=4", 11.25, 12.0)])
    with deciding(rows):
        tuned, = emit(product()).choices
    assert tuned == "product 64x128x64 warps=4 stages=4, tuned (11.2 µs, 12.0 without)"


def test_a_kept_text_is_not_taken_for_another_table() -> None:
    """Groups of one structure have one text (`structural_memo`), but under other tables another one."""
    before = emit(product())
    key = taken_for(product()).choice.key
    with deciding(Rows([Row(key, "32x64x128 warps=4 stages=4")])):
        tuned = emit(product())
    assert before.constexprs["I"] == emit(product()).constexprs["I"] == 64 and tuned.constexprs["I"] == 32


def test_a_kept_text_keeps_no_program() -> None:
    """Equal nodes are one node as long as it lives: a later program would have an earlier one's lines."""
    x, = inputs((4096, 776), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x,), (r.sum(p.exp(x), axes=(1,), keepdims=False),)))).groups
    assert emit(group).choices[0].startswith("rows ")
    held = weakref.ref(group.nodes[0])
    del group, x
    gc.collect()
    assert held() is None


def test_products_of_other_layouts_and_epilogues_are_other_problems() -> None:
    x, w = inputs((64, 96), (128, 96), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x, w), (matmul(x, swap_last(w)) * 2.0,)))).groups
    words = taken_for(group).choice.key.words
    assert "layout=nt" in words and "epilogue=short" in words
    assert "layout=nn" in taken_for(product()).choice.key.words


def test_a_large_product_is_streamed_in_the_form_that_the_model_finds_fastest() -> None:
    choice = taken_for(product(4096, 4096, 4096))
    names = [candidate.name for candidate in choice.choice.candidates]
    assert choice.candidate.name == names[0] and names[0].startswith("streamed ") and len(names) > 8
    times = [x.microseconds for x in choice.choice.candidates if x.name.startswith("streamed")]
    assert times == sorted(times)
    few = replace(H200, multiprocessors=400)
    shared = [x.name for x in taken_for(product(4096, 4096, 4096), few).choice.candidates if "shared" in x.name]
    assert not shared, "exchange memory has no room for the tiles of so many programs"


def test_the_package_has_its_files_that_are_no_code() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["genesis"]
    found = {str(path.relative_to(ROOT / "genesis")) for path in (ROOT / "genesis").rglob("*")
             if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert found == set(told)


@pytest.mark.parametrize(("rows", "groups"), [(2304, 2), (3072, 1)])
def test_small_tiles_of_one_round_are_not_shared(rows: int, groups: int) -> None:
    """The gradient of the weights of queries, keys and values; that of a wider layer has more tiles than a round."""
    found = Product(bfloat16, 1, rows, 768, 16_384, "tn", ops=1)
    form = choose_product(found, streamed_forms(found, H200), H200)
    assert isinstance(form, Form) and (form.groups, form.shared) == (groups, groups == 1)


@pytest.mark.parametrize(("sizes", "shared"), [((3072, 16384, 768), True), ((768, 16384, 3072), True),
                                               ((8192, 8192, 8192), False), ((2048, 2048, 2048), False)], ids=str)
def test_the_form_of_a_class_of_sizes_is_that_of_its_sizes(sizes: tuple[int, int, int], shared: bool) -> None:
    """Its largest have tiles for all multiprocessors: one of each kept half of them idle (H200, the gradient of a
    weight 768 × 16384 × 3072 0.71 of cuBLAS, whose size alone took the shared form at 0.96)."""
    rows, depth, columns = sizes
    alone = streamed_forms(Product(bfloat16, 1, rows, columns, depth), H200)
    with Trace(R=rows, C=columns, D=depth) as trace:
        r, c, d = map(trace.symbol, "RCD")
        found = streamed_forms(Product(bfloat16, 1, r, c, d), H200)
    assert found[0].value.shared == alone[0].value.shared == shared
