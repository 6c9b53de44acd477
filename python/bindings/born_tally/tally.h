// SPDX-License-Identifier: Apache-2.0
// The counts of born arrays as values of Python, and arraybridge._core.tell_born.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>

#include <arraybridge/born_tally.h>

namespace arraybridge::python {

// The place of a framework in born::kFrameworks. Throws ValueError.
size_t FrameworkOf(const std::string& name);
// Arrays, bytes, both of those that found no memory by the reason, and the broker's latest refusal.
pybind11::tuple CountsOf(const BornTally::Counts& counts, const std::string& refusal);
void AddBornTally(pybind11::module_& module);

}  // namespace arraybridge::python
