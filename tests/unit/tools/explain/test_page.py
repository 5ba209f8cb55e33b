"""The picture of an explanation: what is in it, and what a browser makes of it."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tools.explain.pictures import arrange
from tests.support.helpers import assert_says

X = tf.TensorSpec([3], tf.float32)

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"]
_FLAGS += ["disable-background-networking", "disable-component-update"]

needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None,
    reason="no chromium on this machine; .ci/run installs it: apt-get install chromium",
)


LOADING = {"script", "link", "img", "iframe", "object", "embed", "image", "use"}


def unique(x: np.ndarray) -> np.ndarray:
    return np.unique(x)


@tf.function(jit_compile=True)
def program(x: tf.Tensor) -> tf.Tensor:
    y = tf.sin(x) * 2.0
    z = tf.numpy_function(unique, [y], tf.float32)
    for _ in tf.range(3):
        y = tf.numpy_function(np.sort, [y], tf.TensorSpec([3], tf.float32)) + tf.cos(y)
        if y[0] > 3.0:
            tf.print("large:", y)
    return tf.reduce_sum(tf.cos(z)) + tf.reduce_sum(y)


class Page(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def test_a_repl_shows_the_text_and_a_notebook_the_picture() -> None:
    explanation = hostcall.explain(program, X)
    assert repr(explanation) == str(explanation)
    assert "<svg" in explanation._repr_html_()


def test_a_repl_and_a_notebook_show_the_report_of_a_check() -> None:
    report = hostcall.check(np.cumsum, np.ones(3), result=lambda x: x)
    assert repr(report) == str(report)
    assert_says(report._repr_html_(), "<pre>cumsum", "no finding of", "<p>Passed: ")


def test_the_page_draws_the_program_says_what_to_write_and_needs_nothing_else() -> None:
    explanation = hostcall.explain(program, X)
    text = explanation.to_html()
    page = Page(text)
    assert page.open == []
    kinds = [rectangle["class"] for rectangle in page.named("rect")]
    assert kinds.count("cluster") == len(explanation.clusters)
    assert (kinds.count("python"), kinds.count("inner")) == (1, 1)
    assert "other" in kinds
    arrows = [path for path in page.named("path") if "marker-end" in path]
    assert {path["class"] for path in arrows} == {"value", "order"}
    words = ("unique", "sort", "test_page.py:", "cluster 0", "Sin", "While", "PrintV2")
    line = "hostcall.declare(unique, result=lambda x: tf.TensorSpec([...], tf.float32))"
    between = "What stands between compiled clusters"
    assert_says(text, *words, between, f"<code>{line}</code>")
    assert not {tag for tag, _ in page.tags} & LOADING
    for _, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on")}
        assert not {"src", "href"} & set(attributes)


@tf.function(jit_compile=True)
def nested(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        if x[0] > 0.0:
            x += tf.reduce_sum(tf.numpy_function(unique, [x], tf.float32))
        else:
            x = tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
    return x


def test_loops_and_branches_are_drawn_in_their_boxes() -> None:
    text = hostcall.explain(nested, X).to_html()
    page = Page(text)
    assert page.open == []
    assert len(page.named("svg")) == 1
    assert [r["class"] for r in page.named("rect")].count("part") == 3
    titles = ["the body of the loop", "where it is true", "where it is false"]
    assert sorted(titles, key=text.index) == titles


def test_loops_of_a_compiled_program_are_drawn_around_their_script_ops() -> None:
    @tf.function(jit_compile=True)
    def whole(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
        return tf.numpy_function(np.sin, [x], tf.TensorSpec([3], tf.float32))

    text = hostcall.explain(whole, X).to_html()
    kinds = [rectangle["class"] for rectangle in Page(text).named("rect")]
    assert kinds == ["cluster", "inner", "part", "bare", "inner"]
    assert text.index(">sin<") < text.index("the body of the loop") < text.index(">sort<")


def test_notebooks_get_the_same_without_the_frame_and_with_ids_of_its_own() -> None:
    explanation = hostcall.explain(program, X)
    fragment = explanation._repr_html_()
    assert "<html" not in fragment
    assert len(Page(fragment).named("svg")) == len(Page(explanation.to_html()).named("svg"))
    both = Page(fragment + explanation._repr_html_())
    ids = [marker["id"] for marker in both.named("marker")]
    assert len(ids) == len(set(ids))


def test_what_comes_from_the_user_is_escaped() -> None:
    def strange(x: np.ndarray) -> np.ndarray:
        return np.unique(x)

    strange.__qualname__ = "</text><script>alert('&')</script>"
    function = tf.function(lambda x: tf.numpy_function(strange, [x], tf.float32), jit_compile=True)
    text = hostcall.explain(function, X).to_html()
    assert "<script" not in text
    assert "&lt;script&gt;alert(" in text
    assert Page(text).open == []


@pytest.mark.parametrize("jit_compile", [False, True])
def test_functions_without_anything_to_draw_have_a_page_too(jit_compile: bool) -> None:
    function = tf.function(lambda x: x, jit_compile=jit_compile)
    text = hostcall.explain(function, X).to_html()
    assert Page(text).open == []
    assert "What stands between" not in text


def test_boxes_stand_below_what_they_wait_for_and_beside_each_other() -> None:
    names = [f"box{i}" for i in range(40)]
    before = {name: [names[j] for j in (i - 1, i // 2, i - 7) if 0 <= j < i and i % 3] or []
              for i, name in enumerate(names)}  # fmt: skip
    before = {name: list(dict.fromkeys(sources)) for name, sources in before.items()}
    sizes = {name: (60.0 + 5 * i, 20.0 + i) for i, name in enumerate(names)}
    layout = arrange(sizes, before)
    for name, sources in before.items():
        for source in sources:
            assert layout.corners[source][1] + sizes[source][1] < layout.corners[name][1]
    boxes = [(*layout.corners[name], *sizes[name]) for name in names]
    for i, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + width <= layout.width + 1e-6
        assert y + height <= layout.height + 1e-6
        for other_x, other_y, other_width, other_height in boxes[:i]:
            apart = x >= other_x + other_width or other_x >= x + width
            assert apart or y >= other_y + other_height or other_y >= y + height


# Measures, in a browser, whether each text is inside of the rectangle that it belongs to.
_MEASURE = """
<script>
  const bad = [];
  for (const group of document.querySelectorAll("svg g g")) {
    const box = group.querySelector("rect").getBBox();
    for (const text of group.querySelectorAll("text")) {
      const t = text.getBBox();
      if (t.x < box.x || t.x + t.width > box.x + box.width ||
          t.y < box.y || t.y + t.height > box.y + box.height) bad.push(text.textContent);
    }
  }
  const count = document.querySelectorAll("svg g g text").length;
  document.title = "measured " + count + " texts, outside: " + JSON.stringify(bad);
</script></body>"""


@needs_chromium
def test_a_browser_shows_all_texts_inside_their_boxes(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    pages = [hostcall.explain(one, X).to_html() for one in (program, nested)]
    text = "".join(pages).replace("</body>", "", 1).replace("</body>", _MEASURE)
    page.write_text(text, encoding="utf-8")
    options = [*(f"--{flag}" for flag in _FLAGS), f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [str(_CHROMIUM), *options, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None
    assert re.fullmatch(r"measured [1-9]\d* texts, outside: \[\]", title[1]), title[1]
    assert "While" in done.stdout
