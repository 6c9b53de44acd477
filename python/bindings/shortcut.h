// SPDX-License-Identifier: Apache-2.0
// The tables of the fast paths, as the Python modules that own them fill them.
#pragma once

#include <arraybridge/broker.h>

#include "python/bindings/channel_base.h"
#include "python/bindings/python_owner.h"

namespace arraybridge::python {

// A tuple of `size` that a table has under this key, as a new reference, because another thread may clear the table.
// nullptr, possibly without an error.
Ref Entry(PyObject* table, PyObject* key, Py_ssize_t size);

// True: the full path is taken, and reports the error, which is cleared. KeyboardInterrupt and SystemExit are passed
// on: false.
bool MayGoOn();

// The result of a delivery and its plan. No plan: the result is (ShareInfo, [View, ...]).
struct Delivered {
  Ref result;
  Ref plan;
};
// `plans`: from View.traits of the one array of a share to (plan, show, count).
// A share that is found without a call. No result, possibly with an error: the full path is taken.
Delivered AcquireAs(PyObject* core, PyObject* name, bool map_private, PyObject* plans);
// A share that cannot be acquired again: if its array cannot be made, it is delivered without a plan. No result: with
// an error.
Delivered DeliverAs(Acquired& acquired, PyObject* plans);
// The same for an entry of the forms of a Broker. `latest`: the delivery before.
Delivered DeliverAs(Acquired& acquired, PyObject* framework, PyObject* form, LatestDelivery& latest);

// The options of a receive from its arguments in Python: a bool, and seconds or None.
Channel::ReceiveOptions ReceiveOptionsOf(PyObject* map_private, PyObject* timeout, bool waits);
// The next share. Releases the GIL only to wait for it.
Result<Acquired> Received(Channel& receiver, const Channel::ReceiveOptions& options);

// Adds `FastMethod` to the module. -1 with a Python error.
int AddFastMethodType(PyObject* module);

}  // namespace arraybridge::python
