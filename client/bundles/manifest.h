// SPDX-License-Identifier: Apache-2.0
// The layout of a bundle's manifest, version 1.0: the table of its arrays. It lies in broker memory beside their bytes
// and is read in place, on a GPU from one copy in host memory. It has a header, entries sorted by name, and the data
// that they refer to. Numbers are little-endian; offsets are bytes from the manifest's start, unless said otherwise.
//
// The process that wrote it is not trusted, and may write it while it is read. So a reader copies it, checks the copy,
// and uses nothing else. No two of these parts use the same bytes, and no two arrays the same bytes of the slab unless
// they are tied; names are unique. A reader takes every minor version of its major version: a later one may have longer
// entries, and entries that this one refuses when they are used.
#pragma once

#include <cstddef>
#include <cstdint>

#include <arraybridge/bundle.h>

namespace arraybridge::manifest {

inline constexpr uint64_t kMagic = 0x3146494e414d4241;  // "ABMANIF1" in memory
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 0;
inline constexpr uint64_t kBytesMax = uint64_t{1} << 32;  // offsets have 32 bits
inline constexpr uint64_t kAlignment = 256;               // of an array, in its slab; as all broker memory
inline constexpr uint64_t kPadding = 4096;                // of a manifest that this version writes

struct Range {
  uint32_t offset;
  uint32_t bytes;
};

struct Header {
  uint64_t magic;
  uint16_t major;
  uint16_t minor;
  uint32_t entry_bytes;  // from one entry to the next
  uint64_t entries;      // their number; they follow the header
  Range fingerprint;
  Range metadata;
  uint64_t reserved[3];
};
static_assert(sizeof(Header) == 64);

struct Entry {
  uint64_t offset;  // bytes from the start of the slab
  Range name;       // UTF-8
  uint32_t shape;   // offset of `dimensions` numbers of 64 bits
  uint32_t tie;     // the index of an entry with the same bytes that is tied to itself; its own if there is none
  uint16_t lanes;
  uint8_t code;
  uint8_t bits;
  uint8_t dimensions;  // at most 64
  uint8_t kind;        // ArrayKind
  uint16_t slab;       // an index; 0 in this version
};
static_assert(sizeof(Entry) == 32 && offsetof(Entry, lanes) == 24);

}  // namespace arraybridge::manifest
