// Python module of the client of worker processes, for its tests in Python. Never installed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "serving/worker/failure.h"
#include "serving/worker/pool.h"
#include "serving/worker/worker_client.h"

namespace nb = nanobind;

namespace hostcall::serving {
namespace {

using Shape = std::vector<int64_t>;
// A dtype, a shape, and bytes or strings.
using GivenArray = std::tuple<int32_t, Shape, std::variant<nb::bytes, std::vector<nb::bytes>>>;

std::string_view ViewOf(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

class KeptResults : public ResultSink {
 public:
  explicit KeptResults(size_t most_bytes) : most_bytes_(most_bytes) {}

  char* Allocate(size_t, const Shape& shape, size_t bytes) override {
    if (bytes > most_bytes_) return nullptr;
    arrays_.push_back({shape, std::string(bytes, '\0'), {}});
    return arrays_.back().bytes.data();
  }
  bool AllocateStrings(size_t, const Shape& shape) override {
    arrays_.push_back({shape, "", {}});
    return true;
  }
  void SetString(size_t index, size_t, std::string_view text) override {
    arrays_.at(index).strings.emplace_back(text);
  }

  nb::list ToList() const {
    nb::list results;
    for (const Array& array : arrays_) {
      nb::list strings;
      for (const std::string& text : array.strings)
        strings.append(nb::bytes(text.data(), text.size()));
      results.append(
          nb::make_tuple(array.shape, nb::bytes(array.bytes.data(), array.bytes.size()), strings));
    }
    return results;
  }

 private:
  struct Array {
    Shape shape;
    std::string bytes;
    std::vector<std::string> strings;
  };
  size_t most_bytes_;
  std::vector<Array> arrays_;
};

Argument ToArgument(const GivenArray& given) {
  const auto& [dtype, shape, content] = given;
  Argument argument{dtype, shape, {}, {}};
  if (const auto* bytes = std::get_if<nb::bytes>(&content)) {
    argument.bytes = ViewOf(*bytes);
  } else {
    for (const nb::bytes& text : std::get<1>(content)) argument.strings.push_back(ViewOf(text));
  }
  return argument;
}

template <typename Use>
Outcome WithoutGil(const Use& use) {
  const nb::gil_scoped_release released;
  try {
    return use();
  } catch (const Failure& failure) {
    return failure.outcome();
  } catch (const std::bad_alloc&) {
    return {kResourceExhausted, "too much memory"};
  }
}

// Client of a pool with its own settings, or of the pool of the process.
class Client {
 public:
  explicit Client(const std::map<std::string, std::string>& variables)
      : pool_(std::make_unique<Pool>(ReadSettings([&](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        }))) {}
  Client() = default;

  nb::tuple Call(std::string_view op, const nb::bytes& token,
                 const std::vector<GivenArray>& arguments, const std::vector<int32_t>& dtypes,
                 size_t most_bytes) {
    KeptResults results(most_bytes);
    const WorkerCall call = MakeCall(op, token, arguments, dtypes);
    const Outcome outcome =
        WithoutGil([&] { return pool_ ? pool_->Call(call, results) : CallWorker(call, results); });
    return nb::make_tuple(outcome.code, nb::bytes(outcome.message.data(), outcome.message.size()),
                          results.ToList());
  }

  nb::tuple Shapes(std::string_view op, const nb::bytes& token,
                   const std::vector<GivenArray>& arguments, const std::vector<int32_t>& dtypes) {
    std::vector<Shape> shapes;
    const WorkerCall call = MakeCall(op, token, arguments, dtypes);
    const Outcome outcome = WithoutGil(
        [&] { return pool_ ? pool_->AskShapes(call, shapes) : serving::AskShapes(call, shapes); });
    return nb::make_tuple(outcome.code, nb::bytes(outcome.message.data(), outcome.message.size()),
                          shapes);
  }

 private:
  static WorkerCall MakeCall(std::string_view op, const nb::bytes& token,
                             const std::vector<GivenArray>& arguments,
                             const std::vector<int32_t>& dtypes) {
    WorkerCall call{op, ViewOf(token), {}, dtypes};
    for (const GivenArray& argument : arguments) call.arguments.push_back(ToArgument(argument));
    return call;
  }

  std::unique_ptr<Pool> pool_;
};

// A call to repeat with as little Python as possible, for benchmarks.
class PreparedCall : public ResultSink {
 public:
  PreparedCall(const nb::bytes& token, const std::vector<GivenArray>& arguments, int32_t dtype)
      : token_(ViewOf(token)) {
    for (const auto& [number, shape, content] : arguments) {
      bytes_.emplace_back(ViewOf(std::get<nb::bytes>(content)));
      arguments_.push_back({number, shape, {}, {}});
    }
    for (size_t i = 0; i < bytes_.size(); ++i) arguments_[i].bytes = bytes_[i];
    dtypes_ = {dtype};
  }

  // Makes the call and returns the first bytes of the result.
  nb::bytes Run() {
    const Outcome outcome =
        WithoutGil([&] { return CallWorker({"PyFunc", token_, arguments_, dtypes_}, *this); });
    if (!outcome.ok()) throw Failure(outcome.code, outcome.message);
    return nb::bytes(result_.data(), std::min<size_t>(result_.size(), 16));
  }

  char* Allocate(size_t, const Shape&, size_t bytes) override {
    result_.resize(bytes);
    return result_.data();
  }
  bool AllocateStrings(size_t, const Shape&) override { return false; }
  void SetString(size_t, size_t, std::string_view) override {}

 private:
  std::string token_;
  std::vector<std::string> bytes_;
  std::vector<Argument> arguments_;
  std::vector<int32_t> dtypes_;
  std::string result_;
};

}  // namespace
}  // namespace hostcall::serving

NB_MODULE(_worker_client, m) {
  using namespace hostcall::serving;
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      PyErr_SetString(PyExc_ValueError, failure.what());
    }
  });
  nb::class_<Client>(m, "Client")
      .def(nb::init<>(), "The pool of the process, as its environment says.")
      .def(nb::init<const std::map<std::string, std::string>&>(), nb::arg("variables"),
           "A pool as these environment variables would make it.")
      .def("call", &Client::Call, nb::arg("op"), nb::arg("token"), nb::arg("arguments"),
           nb::arg("dtypes"), nb::arg("most_bytes") = size_t{1} << 40,
           "Calls a function: (code, message, results as (shape, bytes, strings)).")
      .def("shapes", &Client::Shapes, nb::arg("op"), nb::arg("token"), nb::arg("arguments"),
           nb::arg("dtypes"), "Asks for the shapes of results: (code, message, shapes).");
  nb::class_<PreparedCall>(m, "PreparedCall")
      .def(nb::init<const nb::bytes&, const std::vector<GivenArray>&, int32_t>(), nb::arg("token"),
           nb::arg("arguments"), nb::arg("dtype"),
           "A call of a PyFunc with one result, by the pool of the process.")
      .def("__call__", &PreparedCall::Run, "Makes the call, and returns the result's first bytes.");
  m.def("label_of_token", [](const nb::bytes& token) { return LabelOfToken(ViewOf(token)); });
}
