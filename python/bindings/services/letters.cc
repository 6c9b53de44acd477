// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/services/letters.h"

#include <arraybridge/services/letter.h>

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <pybind11/stl.h>

namespace arraybridge::python {

namespace py = pybind11;

namespace {

using Fields =
    std::tuple<std::string, std::string, uint64_t, uint64_t, std::string, bool, std::vector<uint64_t>, uint64_t>;

py::bytes Encoded(const Fields& fields) {
  return std::apply([](const auto&... each) { return ServiceLetter{each...}.Encoded(); }, fields);
}

py::object Decoded(const py::bytes& metadata) {
  const auto letter = ServiceLetter::Of(std::string_view(metadata));
  if (!letter) return py::none();
  return py::make_tuple(letter->kind, letter->peer, letter->number, letter->due_ns, letter->text, letter->retry,
                        py::tuple(py::cast(letter->held)), letter->room);
}

}  // namespace

void AddLetters(py::module_& module) {
  module.def("letter", &Encoded);
  module.def("read_letter", &Decoded);
}

}  // namespace arraybridge::python
