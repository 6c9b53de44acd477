// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.Core and Placement: the client's Broker for Python. No policy, no framework. Functions that wait or
// copy release the GIL.
#pragma once

#include <arraybridge/broker.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "python/bindings/publishing.h"

namespace arraybridge::python {

void AddCore(pybind11::module_& module);

// The share that a Core finds without a call. Keeps the GIL, because it does not wait. Throws if `core` is not a Core.
std::optional<Acquired> TryAcquire(PyObject* core, std::string_view name, bool map_private);

// The client's objects in a Core and in a ChannelEnd. They throw if the Python object is another.
Broker& BrokerOf(PyObject* core);
Channel& ChannelOf(PyObject* end);

// Takes a new reference. Throws the error that is set if there is none.
pybind11::object Own(PyObject* object);
// Of Python's Views. Throws if one of them is none.
std::vector<View> ViewsOf(const pybind11::sequence& objects);

// The options of a put.
const PutOptions& OptionsOf(PyObject* options);

// Seconds, or None: no limit. More than a week is no limit. Throws if it is neither, NaN, or negative.
std::optional<std::chrono::milliseconds> TimeoutOf(PyObject* seconds);

// A new StatusError; nullptr with another error.
PyObject* StatusErrorOf(const Status& status);
// Sets a StatusError. Returns nullptr.
PyObject* RaiseStatus(const Status& status);

}  // namespace arraybridge::python
