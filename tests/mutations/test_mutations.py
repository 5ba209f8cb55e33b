"""tests.mutations: each mutation fits the sources, and each operation does what it says."""

from typing import Any

import pytest

from tests.mutations.mutation import ROOT, Mutation, MutationError, load, read

PYTHON = '''\
class Line:
    """Hold calls; self.waiting is a list."""

    limit: int = 3

    def put(self, call, *, force=False):  # if self.is_full()
        """Put a call, unless the line is_full."""
        if self.is_full() and not force:
            raise Full("limit", limit=self.limit)
        self.waiting = [one for one in self.waiting if one.lives]
        self.waiting.append(call)

        def undo():
            self.waiting.remove(call)

        return undo if call.is_kept else None
'''
CPP = """\
#define ASSERT(x) if (!(x)) {
namespace hostcall {
namespace {
constexpr char kName[] = {'"', 0};
template <typename T, typename = std::enable_if_t<true>>
std::vector<T> Doubled(const std::vector<T>& values) { return values; }
int Doubled(int value) { return 2 * value; }
}  // namespace

class Line final : public Base {
 public:
  explicit Line(int limit) : limit_{limit}, waiting_() { Begin(); }
  ~Line() { End(); }
  bool IsFull() const override { return waiting_.size() >= limit_ && !(forced_ || limit_ == 0); }

 private:
  struct Entry { int id = 0; void Free() { id = -1; } };
  int limit_{3};
};

// void Line::Put(Call call) { "
absl::Status Line::Put(Call call) {
  static const bool prepared = [] { Prepare("; }"); return true; }();
  if (IsFull()) return Full();  /* Put(call) } */
  for (const Entry& entry : waiting_) Drop(entry, [&] { Forget(entry.id); });
  if (const int id = call.id(); id > 0 && id < limit_) {
    last_ = Of(id, call);
  } else {
    Refuse(call.id() ? "(" : ")");
  }
  return absl::OkStatus();
}
}  // namespace hostcall
"""


@pytest.mark.parametrize("mutation", load([]), ids=lambda mutation: mutation.name)
def test_each_fix_can_be_undone(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    mutated = mutation.applied(text)
    assert mutated != text
    if mutation.file.endswith(".py"):
        compile(mutated, mutation.file, "exec", dont_inherit=True)
    for test in mutation.tests:
        file, _, _ = test.split()[0].partition("::")
        assert (ROOT / file).exists()


def make(function: str, **fields: str) -> Mutation:
    """Return a mutation of one of the files above."""
    return read("one", {"function": function, "tests": [], **fields})


def changed(mutation: Mutation, text: str) -> tuple[str, str]:
    """Return what a mutation takes out of the lines of a text, and what it puts there."""
    old, new = text.splitlines(), mutation.applied(text).splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return "\n".join(map(str.strip, old)), "\n".join(map(str.strip, new))


@pytest.mark.parametrize(
    ("function", "fields", "old", "new"),
    [
        ("Line.put.undo", {"returns": ""}, "self.waiting.remove(call)", "return"),
        ("Line.put.undo", {"returns": "1"}, "self.waiting.remove(call)", "return 1"),
        ("Line.put", {"drop": "append"}, "self.waiting.append(call)", "pass"),
        ("Line.put", {"drop": "Full"}, 'raise Full("limit", limit=self.limit)', "pass"),
        (
            "Line.put",
            {"statement": "append", "becomes": "for _ in 1, 2:\n    self.put(call)"},
            "self.waiting.append(call)",
            "for _ in 1, 2:\nself.put(call)",
        ),
        (
            "Line.put",
            {"condition": "is_full", "becomes": "False"},
            "if self.is_full() and not force:",
            "if False and not force:",
        ),
        (
            "Line.put",
            {"condition": "is_full() and", "becomes": "False"},
            "if self.is_full() and not force:",
            "if False:",
        ),
        (
            "Line.put",
            {"condition": "lives", "becomes": "True"},
            "self.waiting = [one for one in self.waiting if one.lives]",
            "self.waiting = [one for one in self.waiting if True]",
        ),
        (
            "Line.put",
            {"condition": "is_kept", "becomes": "True"},
            "return undo if call.is_kept else None",
            "return undo if True else None",
        ),
        (
            "Line.put",
            {"value": "limit", "becomes": "0"},
            'raise Full("limit", limit=self.limit)',
            'raise Full("limit", limit=0)',
        ),
        (
            "Line.put",
            {"value": "self.waiting", "becomes": "[]"},
            "self.waiting = [one for one in self.waiting if one.lives]",
            "self.waiting = []",
        ),
        (
            "Line.put",
            {"text": "force=False", "becomes": "force=True"},
            "def put(self, call, *, force=False):  # if self.is_full()",
            "def put(self, call, *, force=True):  # if self.is_full()",
        ),
        ("Line", {"drop": "limit: int"}, "limit: int = 3", "pass"),
    ],
    ids=str,
)
def test_operations_on_python(function: str, fields: dict[str, str], old: str, new: str) -> None:
    assert changed(make(f"line.py::{function}", **fields), PYTHON) == (old, new)


@pytest.mark.parametrize(
    ("function", "fields", "old", "new"),
    [
        ("Line::~Line", {"returns": ""}, "~Line() { End(); }", "~Line() { return; }"),
        (
            "Line::Entry::Free",
            {"drop": "id"},
            "struct Entry { int id = 0; void Free() { id = -1; } };",
            "struct Entry { int id = 0; void Free() { {} } };",
        ),
        (
            "Line::Line",
            {"drop": "Begin"},
            "explicit Line(int limit) : limit_{limit}, waiting_() { Begin(); }",
            "explicit Line(int limit) : limit_{limit}, waiting_() { {} }",
        ),
        (
            "Line::IsFull",
            {"condition": "forced_", "becomes": "true"},
            "bool IsFull() const override { return waiting_.size() >= limit_ && "
            "!(forced_ || limit_ == 0); }",
            "bool IsFull() const override { return waiting_.size() >= limit_ && "
            "!(true || limit_ == 0); }",
        ),
        (
            "Doubled",
            {"text": "2", "becomes": "3"},
            "int Doubled(int value) { return 2 * value; }",
            "int Doubled(int value) { return 3 * value; }",
        ),
        (
            "Line::Put",
            {"statement": "Prepare", "becomes": "Forget();"},
            'static const bool prepared = [] { Prepare("; }"); return true; }();',
            "static const bool prepared = [] { Forget(); return true; }();",
        ),
        (
            "Line::Put",
            {"condition": "IsFull", "becomes": "false"},
            "if (IsFull()) return Full();  /* Put(call) } */",
            "if (false) return Full();  /* Put(call) } */",
        ),
        (
            "Line::Put",
            {"drop": "Full()"},
            "if (IsFull()) return Full();  /* Put(call) } */",
            "if (IsFull()) {}  /* Put(call) } */",
        ),
        (
            "Line::Put",
            {"drop": "Forget"},
            "for (const Entry& entry : waiting_) Drop(entry, [&] { Forget(entry.id); });",
            "for (const Entry& entry : waiting_) Drop(entry, [&] { {} });",
        ),
        (
            "Line::Put",
            {"condition": "id > 0", "becomes": "true"},
            "if (const int id = call.id(); id > 0 && id < limit_) {",
            "if (const int id = call.id(); true && id < limit_) {",
        ),
        (
            "Line::Put",
            {"condition": "id > 0 &&", "becomes": "true"},
            "if (const int id = call.id(); id > 0 && id < limit_) {",
            "if (const int id = call.id(); true) {",
        ),
        (
            "Line::Put",
            {"condition": "call.id", "becomes": "true"},
            'Refuse(call.id() ? "(" : ")");',
            'Refuse(true ? "(" : ")");',
        ),
        ("Line::Put", {"value": "last_", "becomes": "0"}, "last_ = Of(id, call);", "last_ = 0;"),
    ],
    ids=str,
)
def test_operations_on_cpp(function: str, fields: dict[str, str], old: str, new: str) -> None:
    assert changed(make(f"csrc/line.cc::{function}", **fields), CPP) == (old, new)


def test_a_constant_of_a_file() -> None:
    text = "# LIMIT = 3\nFIRST, LIMIT = 1, 3\nprint(LIMIT)\n"
    mutation = make("line.py", value="LIMIT", becomes="1, 4")
    assert changed(mutation, text) == ("FIRST, LIMIT = 1, 3", "FIRST, LIMIT = 1, 4")


@pytest.mark.parametrize(
    ("function", "fields", "error"),
    [
        ("line.py::Line.get", {"returns": ""}, "one: line.py does not define Line.get"),
        ("line.py::put", {"returns": ""}, "one: line.py does not define put"),
        ("line.cc::Put", {"returns": ""}, "one: line.cc does not define Put"),
        ("line.cc::Doubled", {"returns": ""}, "one: .* is found 2 times in Doubled"),
        ("line.py::Line.put", {"drop": "waiting"}, "one: .*'waiting' is found 3 times"),
        ("line.py::Line.put", {"drop": "wait"}, "one: .*drop 'wait' is found 0 times in Line.put"),
        ("line.py::Line.put", {"condition": "append", "becomes": ""}, "is found 0 times"),
        ("line.cc::Line::Put", {"text": "call", "becomes": "x"}, "'call' is found 4 times"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_sources(function: str, fields: dict[str, Any], error: str) -> None:
    mutation = make(function, **fields)
    with pytest.raises(MutationError, match=error):
        mutation.applied(PYTHON if ".py" in function else CPP)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, r"one: it does not do one thing, but \[\]"),
        ({"drop": "a", "returns": ""}, r"one: it does not do one thing, but \['returns', 'drop'\]"),
        ({"drop": "a", "becomes": "b"}, r"one: .*unknown or missing: \['becomes'\]"),
        ({"value": "a"}, r"one: .*unknown or missing: \['becomes'\]"),
        ({"drop": "a", "test": "b"}, r"one: .*unknown or missing: \['test'\]"),
    ],
    ids=str,
)
def test_fields_that_nobody_knows(fields: dict[str, str], error: str) -> None:
    with pytest.raises(MutationError, match=error):
        make("line.py::Line.put", **fields)


def test_names_that_no_mutation_has() -> None:
    with pytest.raises(MutationError, match=r"unknown: \['none'\]"):
        load(["none"])
