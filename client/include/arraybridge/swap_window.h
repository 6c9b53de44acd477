// SPDX-License-Identifier: Apache-2.0
// A SwapWindow is a range of addresses at which a process reads the slab of one generation of a bundle, and after a
// swap that of the next one. Arrays that were made of it once, such as the parameters of a model, read the next weights
// from then on. Other mappings of this process, such as those of Broker::Acquire, do not change.
//
//   auto live = arraybridge::Bundle::Of(broker.Acquire({.name = "model"})->views);
//   auto window = arraybridge::SwapWindow::Of(*live);
//   auto weight = (*window)->Over(*live).At(0);                          // at the window's addresses
//   auto next = arraybridge::Bundle::Of(broker.Acquire({.name = "model"})->views);    // a later generation
//   if (arraybridge::SwapWindow::CheckLayout(*live, *next).ok() && (*window)->Prepare(*next).ok()) {
//     const bool swapped = (*window)->Swap().ok();                       // while no thread reads the arrays
//     const bool cleaned = (*window)->Clean().ok();                      // at any time afterwards
//   }
#pragma once

#include <cstdint>
#include <memory>

#include <arraybridge/bundle.h>

namespace arraybridge {

// Thread-safe. It keeps the generations that it maps: the one that is shown, the prepared one, and the one that was
// swapped out until Clean.
class SwapWindow : public std::enable_shared_from_this<SwapWindow> {
 public:
  // A window that shows `first`. INVALID_ARGUMENT, NO_SLAB: the bundle has no bytes. UNIMPLEMENTED, NOT_HOST_MEMORY: it
  // was not acquired for reading (MapMode::kShared), or lies on a GPU in memory with a cudaIpcMemHandle. UNIMPLEMENTED,
  // NO_MOVE: the kernel is older than Linux 5.13. RESOURCE_EXHAUSTED: no room for a mapping. Errors of the GPU's
  // driver. REQUIRES: on a GPU, its views are those of Broker::Acquire.
  static Result<std::shared_ptr<SwapWindow>> Of(const Bundle& first);
  // Both bundles have the same names, types, shapes, ties and places in the slab. FAILED_PRECONDITION, OTHER_LAYOUT
  // names the first difference. Errors of Bundle::At.
  static Status CheckLayout(const Bundle& live, const Bundle& next);
  ~SwapWindow();
  SwapWindow(const SwapWindow&) = delete;
  SwapWindow& operator=(const SwapWindow&) = delete;

  // The same arrays at the window's addresses, read-only. They keep the window. REQUIRES: `bundle` has the layout of
  // the generation that is shown.
  Bundle Over(const Bundle& bundle);
  // True if the window shows a byte of the slab at this address.
  bool Contains(uint64_t address) const;
  // True if it shows memory of a GPU: then Prepare waits until the next generation is written there, and Swap until the
  // GPU has done all work that this process has queued.
  bool IsOnGpu() const;

  enum class How : uint8_t { kMapped, kCopied };
  // Prepares the next generation beside the one that is shown, with all page tables. The one that was prepared before
  // is dropped. It is mapped if its slab begins at the same place of a page as the first one, as the slabs of large
  // bundles do, and copied otherwise. FAILED_PRECONDITION, NOT_CLEAN: Clean was not called since the last Swap.
  // FAILED_PRECONDITION, OTHER_LAYOUT: on a GPU it lies at another place of its arena. Errors of Of. REQUIRES:
  // CheckLayout.
  Result<How> Prepare(const Bundle& next);
  // Shows the prepared generation. A thread that reads meanwhile sees old or new bytes. FAILED_PRECONDITION,
  // NOT_PREPARED. RESOURCE_EXHAUSTED: the kernel refused; the window shows the same as before. On a GPU its driver's
  // errors, and UNAVAILABLE: a graph is being captured.
  Status Swap();
  // Ends the use of the generation that was swapped out, and of one that is prepared. RESOURCE_EXHAUSTED: they are kept
  // until the next call.
  Status Clean();

 private:
  struct State;
  explicit SwapWindow(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace arraybridge
