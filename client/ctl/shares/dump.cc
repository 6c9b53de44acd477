// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "client/ctl/shares/npy.h"
#include "client/ctl/shares/transfer.h"
#include "client/ctl/temp_file.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

// The mode of the file that is replaced; for a new file the default of open().
mode_t ModeOf(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) ? found.st_mode & 0777 : 0666;
}

// ALREADY_EXISTS: the name exists and `force` is false, or it is not a regular file.
Status CheckName(const std::string& path, bool force) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return Ok();
  if (!force) return AlreadyExists(path, ": already exists (--force replaces it)");
  return S_ISREG(found.st_mode) ? Ok() : AlreadyExists(path, ": already exists and is not a regular file");
}

// A user who could not read the old file must not be able to read the new one.
Status Finish(TempFile& temp_file, const DumpWishes& wishes) {
  struct stat before {};
  if (wishes.force && ::lstat(wishes.file.c_str(), &before) == 0) {
    AB_RETURN_IF_ERROR(temp_file.SetMode(before.st_mode & 0777));
  }
  return temp_file.Finish(wishes.force);
}

using TakeBytes = std::function<Status(const void* bytes, uint64_t count)>;

// Copies the piece first if this process cannot read the bytes where they lie.
Status TakePiece(const View& piece, const TakeBytes& take) {
  if (piece.device.type == kDeviceCpu && piece.compact()) return take(piece.data, piece.nbytes());
  const auto copied = CopyToHeap(piece);
  return copied.ok() ? take(copied->data, copied->nbytes()) : copied.status();
}

View BytesOf(const View& view, uint64_t at, uint64_t count) {
  View piece = view;
  piece.type = {1, 8};
  piece.dtype = "uint8";
  piece.data = static_cast<std::byte*>(view.data) + at;
  piece.shape = {static_cast<int64_t>(count)};
  piece.strides = {1};
  return piece;
}

// In row-major order: pieces of kPieceBytes of a compact array, slices of the first index of any other.
Status ForEachPiece(const View& view, const TakeBytes& take) {
  const uint64_t bytes = view.nbytes();
  if (bytes == 0) return Ok();
  if (view.compact()) {
    for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
      AB_RETURN_IF_ERROR(TakePiece(BytesOf(view, at, std::min(kPieceBytes, bytes - at)), take));
    }
    return Ok();
  }
  const int64_t rows = view.shape.front();
  const auto row_bytes = static_cast<int64_t>(bytes) / rows;
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes) / row_bytes);
  const int64_t stride_bytes = view.strides.front() * view.type.bits * view.type.lanes / 8;
  for (int64_t row = 0; row < rows; row += step) {
    View piece = view;
    piece.data = static_cast<std::byte*>(view.data) + row * stride_bytes;
    piece.shape.front() = std::min(step, rows - row);
    AB_RETURN_IF_ERROR(TakePiece(piece, take));
  }
  return Ok();
}

Result<size_t> IndexIn(const Share& share, const std::optional<uint64_t>& wished) {
  const size_t count = share.arrays.size();
  if (!wished && count == 1) return size_t{0};
  if (!wished)
    return InvalidArgument("'", share.name, "' has ", count, " arrays: choose one with --array 0 to ", count - 1);
  if (*wished < count) return static_cast<size_t>(*wished);
  return NotFound("'", share.name, "' has ", count, count == 1 ? " array" : " arrays", " but none with index ",
                  *wished);
}

void Tell(const Share& share, const ArraySpec& array, uint64_t bytes, const Options& options, const DumpWishes& wishes,
          std::ostream& out) {
  std::string shape;
  for (const int64_t each : array.shape) shape += Concat(shape.empty() ? "" : ",", each);
  const std::string what = array.dtype + "[" + shape + "]";
  Style style = StyleOf(options);
  if (style.json()) style.output = Output::kJsonl;  // an object, not a list of one
  Table table({"NAMESPACE", "NAME", "GENERATION", "ARRAY", "SIZE", "FILE"}, style);
  table.Add({share.ns, share.name, std::to_string(share.generation), what, table.Size(bytes), wishes.file});
  table.Print(out, options.header);
}

}  // namespace

Status Dump(const Options& options, const DumpWishes& wishes, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(auto broker, ClientOf(options));
  Broker::AcquireOptions how;
  how.note = "dump to a file";
  const auto acquired = broker.Acquire({.name = wishes.share, .generation = wishes.generation}, how);
  if (!acquired.ok()) return acquired.status();
  const Share& share = *acquired->share;
  AB_ASSIGN_OR_RETURN(const auto index, IndexIn(share, wishes.array));
  AB_ASSIGN_OR_RETURN(const auto head, NpyHead(share.arrays[index]));
  AB_RETURN_IF_ERROR(CheckName(wishes.file, wishes.force));
  TempFile temp_file(wishes.file, ModeOf(wishes.file));
  AB_RETURN_IF_ERROR(temp_file.Write(head.data(), head.size()));
  const View& view = acquired->views[index];
  AB_RETURN_IF_ERROR(
      ForEachPiece(view, [&](const void* bytes, uint64_t count) { return temp_file.Write(bytes, count); }));
  AB_RETURN_IF_ERROR(Finish(temp_file, wishes));
  Tell(share, share.arrays[index], view.nbytes(), options, wishes, out);
  return Ok();
}

}  // namespace arraybridge::ctl
