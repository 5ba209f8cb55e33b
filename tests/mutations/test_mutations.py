"""tests.mutations: each mutation fits the sources, and each operation does what it says."""

from typing import Any

import pytest

from tests.mutations.__main__ import together
from tests.mutations.mutation import ROOT, Mutation, MutationError, load, read

PYTHON = '''\
# LIMIT = 3
FIRST, LIMIT = 1, 3


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


def test_the_tests_of_a_file_run_together_on_the_sources_as_they_are() -> None:
    tests = {"a.py::one", "a.py::two", "a.py -k 'x or y'", "a.py -k z", "b.py --flag", "b.py"}
    assert together(tests) == [
        ["a.py::one", "a.py::two"],
        ["b.py"],
        ["a.py", "-k", "(x or y) or (z)"],
        ["b.py", "--flag"],
    ]


def make(function: str, **fields: Any) -> Mutation:
    """Return a mutation of one of the files above."""
    return read("one", {"function": function, "tests": [], **fields})


@pytest.mark.parametrize(
    ("function", "fields", "old", "new"),
    [
        ("line.py", {"value": ["LIMIT", "1, 4"]}, "1, 3", "1, 4"),
        ("line.py::Line.put.undo", {"returns": ""}, "self.waiting.remove(call)", "return"),
        ("line.py::Line.put", {"drop": "append"}, "self.waiting.append(call)", "pass"),
        ("line.py::Line.put", {"drop": "Full"}, 'raise Full("limit", limit=self.limit)', "pass"),
        ("line.py::Line.put", {"statement": ["append", "if call:\n    self.put(call)"]},
         "self.waiting.append(call)", "if call:\n            self.put(call)"),
        ("line.py::Line.put", {"condition": ["is_full", "False"]},
         "if self.is_full() and", "if False and"),
        ("line.py::Line.put", {"condition": ["is_full() and", "False"]},
         "if self.is_full() and not force", "if False"),
        ("line.py::Line.put", {"condition": ["lives", "True"]}, "if one.lives", "if True"),
        ("line.py::Line.put", {"condition": ["is_kept", "True"]}, "if call.is_kept", "if True"),
        ("line.py::Line.put", {"value": ["limit", "0"]}, "limit=self.limit", "limit=0"),
        ("line.py::Line.put", {"value": ["self.waiting", "[]"]},
         "[one for one in self.waiting if one.lives]", "[]"),
        ("line.py::Line.put", {"text": ["force=False", "force=True"]}, "force=False", "force=True"),
        ("line.py::Line", {"drop": "limit: int"}, "limit: int = 3", "pass"),
        ("line.cc::Line::~Line", {"returns": ""}, "{ End(); }", "{ return; }"),
        ("line.cc::Line::Entry::Free", {"drop": "id"}, "id = -1;", "{}"),
        ("line.cc::Line::Line", {"drop": "Begin"}, "Begin();", "{}"),
        ("line.cc::Line::IsFull", {"condition": ["forced_", "true"]}, "(forced_ ||", "(true ||"),
        ("line.cc::Doubled", {"text": ["2", "3"]}, "return 2", "return 3"),
        ("line.cc::Line::Put", {"statement": ["Prepare", "Forget();"]},
         'Prepare("; }");', "Forget();"),
        ("line.cc::Line::Put", {"condition": ["IsFull", "false"]}, "if (IsFull())", "if (false)"),
        ("line.cc::Line::Put", {"drop": "Full()"}, "return Full();", "{}"),
        ("line.cc::Line::Put", {"drop": "Forget"}, "Forget(entry.id);", "{}"),
        ("line.cc::Line::Put", {"condition": ["id > 0", "true"]}, "id > 0", "true"),
        ("line.cc::Line::Put", {"condition": ["id > 0 &&", "true"]},
         "id > 0 && id < limit_", "true"),
        ("line.cc::Line::Put", {"condition": ["call.id", "true"]},
         "Refuse(call.id()", "Refuse(true"),
        ("line.cc::Line::Put", {"value": ["last_", "0"]}, "Of(id, call)", "0"),
    ],
    ids=str,
)  # fmt: skip
def test_operations(function: str, fields: dict[str, Any], old: str, new: str) -> None:
    text = PYTHON if ".py" in function else CPP
    assert text.count(old) == 1
    assert make(function, **fields).applied(text) == text.replace(old, new)


@pytest.mark.parametrize(
    ("function", "fields", "error"),
    [
        ("line.py::Line.get", {"returns": ""}, "one: line.py does not define Line.get"),
        ("line.cc::Put", {"returns": ""}, "one: line.cc does not define Put"),
        ("line.cc::Doubled", {"returns": ""}, "one: .* is found 2 times in Doubled"),
        ("line.py::Line.put", {"drop": "waiting"}, "one: .*'waiting' is found 3 times"),
        ("line.py::Line.put", {"condition": ["append", ""]}, "is found 0 times"),
        ("line.cc::Line::Put", {"text": ["call", "x"]}, "'call' is found 4 times"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_sources(function: str, fields: dict[str, Any], error: str) -> None:
    mutation = make(function, **fields)
    with pytest.raises(MutationError, match=error):
        mutation.applied(PYTHON if ".py" in function else CPP)
