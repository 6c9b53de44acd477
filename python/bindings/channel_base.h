// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.ChannelBase: the base class of Channel, with what its fast methods need. A raw C type, whose fields
// they read without looking up an attribute.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <arraybridge/share.h>

#include <cstdint>
#include <memory>

namespace arraybridge::python {

// How the latest share of one array was delivered. One that equals it in all fields is delivered alike.
struct LatestDelivery {
  PyObject* framework = nullptr;  // null: there is none yet
  std::shared_ptr<const Share> share;
  uint64_t alignment = 0;
  PyObject* form = nullptr;     // of the framework: an entry of the forms of a Broker
  PyObject* decided = nullptr;  // the plan, how the array is shown, and its count
};

// The references of `_prepare`; null before it.
struct ChannelBase {
  PyObject_HEAD PyObject* broker;  // the attribute `_fast` of the Broker
  PyObject* ends;                  // from a role to its ChannelEnd
  PyObject* unclaimed;             // what is received already
  PyObject* makers;                // from a class to what makes Views of its ordinary arrays, and raises for others
  PyObject* freeze;                // is called with an array that was sent in place
  bool waits;                      // on_peer_death="wait"
  LatestDelivery latest;
};

// Adds the type to the module, once per process. -1 with a Python error.
int AddChannelBaseType(PyObject* module);

// nullptr: it is of another class, or was made without `_prepare`.
ChannelBase* ChannelBaseOf(PyObject* channel);

}  // namespace arraybridge::python
