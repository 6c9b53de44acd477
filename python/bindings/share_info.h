// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.ShareInfo: a Share as a raw C type. Its attributes are created when they are read, since a get
// reads few of them.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>

#include <arraybridge/share.h>

namespace arraybridge::python {

int AddShareInfoType(PyObject* module);
// A new reference; nullptr with a Python error.
// `sent`: how the share came into the channel from which it was received.
PyObject* NewShareInfo(std::shared_ptr<const Share> share, Sent sent = {});

// Borrowed; nullptr with a Python error if it is not a ShareInfo.
const Share* ShareOf(PyObject* object);

}  // namespace arraybridge::python
