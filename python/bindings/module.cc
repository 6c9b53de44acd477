// SPDX-License-Identifier: Apache-2.0
// The extension: bytes and arrays, no policy, no framework. View and ShareInfo are raw C types, Core is pybind11's.
#include <arraybridge/device.h>
#include <dlpack/dlpack.h>
#include <pybind11/pybind11.h>

#include "python/bindings/born/born.h"
#include "python/bindings/bundle.h"
#include "python/bindings/channel_base.h"
#include "python/bindings/core.h"
#include "python/bindings/device_blocks/device_block.h"
#include "python/bindings/exchange.h"
#include "python/bindings/handoff.h"
#include "python/bindings/ndarray.h"
#include "python/bindings/one_memory/one_memory.h"
#include "python/bindings/plan_note.h"
#include "python/bindings/services/letters.h"
#include "python/bindings/share_info.h"
#include "python/bindings/shortcut.h"
#include "python/bindings/tables/described_table.h"
#include "python/bindings/tiers/tiers.h"
#include "python/bindings/view.h"
#include "python/bindings/windows/swap_window.h"

namespace {

namespace ab = arraybridge::python;

template <class Function>
PyCFunction Fast(Function function) {  // functions with other argument lists; the flags describe them
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef g_functions[] = {
    {"wrap", ab::Wrap, METH_O, "wrap($module, obj, /)\n--\n\nA View of an object that supports DLPack. Does not copy."},
    {"exchanger", ab::Exchanger, METH_O,
     "exchanger($module, type, /)\n--\n\nWhat makes objects of a type that has DLPack's exchange table."},
    {"capsuled", ab::Capsuled, METH_O,
     "capsuled($module, take, /)\n--\n\nWhat gives a function Views as unversioned capsules."},
    {"exported", ab::Exported, METH_O,
     "exported($module, capsule, /)\n--\n\nThe View that a capsule was made of, by whatever name; None of other "
     "producers."},
    {"ndarray", ab::Ndarray, METH_O, "ndarray($module, view, /)\n--\n\nNumPy's array over a View. Does not copy."},
    {"heeds_read_only", ab::HeedsReadOnly, METH_O,
     "heeds_read_only($module, take, /)\n--\n\nWhether `take` makes something read-only of a read-only View."},
    {"shortcut", Fast(ab::Shortcut), METH_FASTCALL,
     "shortcut($module, routes, array, /, *wishes)\n--\n\nWhat becomes of an array that is like one before, and its "
     "plan."},
    {"try_acquire", Fast(ab::TryAcquireAs), METH_FASTCALL,
     "try_acquire($module, core, name, private, plans, /)\n--\n\nThe result for a share that is found without a call."},
    {"receive", Fast(ab::ReceiveAs), METH_FASTCALL,
     "receive($module, end, private, timeout_s, waits, plans, /)\n--\n\nThe result for the next array of a channel."},
    {"put", Fast(ab::PutOrdinary), METH_FASTCALL,
     "put($module, core, maker, name, array, options, /)\n--\n\nPublishes an ordinary array."},
    {"empty_array", Fast(ab::EmptyArray), METH_FASTCALL,
     "empty_array($module, core, shape, dtype, show, /)\n--\n\nAn array in broker memory."},
    {"wrap_buffer", Fast(ab::WrapBuffer), METH_FASTCALL | METH_KEYWORDS,
     "wrap_buffer($module, obj, /, *, read_only=None)\n--\n\nA View of an object with the buffer protocol."},
    {"wrap_constant", ab::WrapConstant, METH_O,
     "wrap_constant($module, obj, /)\n--\n\nwrap_buffer, of an array that nothing writes to."},
    {"wrap_array_interface", ab::WrapArrayInterface, METH_VARARGS,
     "wrap_array_interface($module, interface, owner, /)\n--\n\nA View of an __array_interface__ dictionary."},
    {"wrap_cuda_array_interface", ab::WrapCudaArrayInterface, METH_VARARGS,
     "wrap_cuda_array_interface($module, interface, owner, /)\n--\n\nA View of a __cuda_array_interface__ dictionary."},
    {"gpus", ab::Gpus, METH_NOARGS, "gpus($module, /)\n--\n\nThe UUIDs of the GPUs that this process sees."},
    {"gpu_reaches", ab::GpuReaches, METH_VARARGS,
     "gpu_reaches($module, start, end, /)\n--\n\nWhether copies from one GPU to another go directly, not by the host."},
    {"copy_to_heap", ab::CopyToHeapOf, METH_O,
     "copy_to_heap($module, view, /)\n--\n\nA private, writable, compact copy."},
    {"copy_to_gpus", ab::CopyToGpusOf, METH_VARARGS,
     "copy_to_gpus($module, sources, destinations, /)\n--\n\nWrites arrays into arrays on GPUs, in one batch."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PYBIND11_MODULE(_core, module) {
  if (ab::InternExchangeNames() < 0 || ab::AddViewType(module.ptr()) < 0 || ab::AddShareInfoType(module.ptr()) < 0 ||
      ab::AddChannelBaseType(module.ptr()) < 0 || ab::AddFastMethodType(module.ptr()) < 0 ||
      ab::AddPlanNoteTypes(module.ptr()) < 0 || PyModule_AddFunctions(module.ptr(), g_functions) < 0)
    throw pybind11::error_already_set();
  module.attr("__version__") = ARRAYBRIDGE_VERSION;
  module.attr("dlpack_version") = pybind11::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  // Created without the GIL, because it waits for a query in progress.
  pybind11::class_<arraybridge::CaptureScope>(module, "CaptureScope", pybind11::is_final())
      .def(pybind11::init<>(), pybind11::call_guard<pybind11::gil_scoped_release>());
  for (auto* const add : {ab::AddCore, ab::AddBundle, ab::AddDescribedTable, ab::AddBorn, ab::AddDeviceBlocks,
                          ab::AddOneMemory, ab::AddSwapWindow, ab::AddTiers, ab::AddLetters})
    add(module);
}
