// Hostile input as numbers and bytes, and batches built from it. Buffers have exactly the size of
// their batch, so that the sanitizers detect every access outside.
//
// Grammar of a batch: u8 lie (0: none; else the u32 that follows overwrites header word 1 + (lie -
// 1) % 7), u8 cut (bytes missing at the end of the buffer), u8 spare rows, u8 rows, u16 arena
// bytes, u16 unused arena bytes. Then follow u32 start and i32 length for each row, then the arena.
// Missing input reads as zero. Numbers are little-endian; corpora do not depend on layouts.
#pragma once

#include <sanitizer/asan_interface.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::test {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  template <typename T>
  T Take() {
    T value{};
    TakeBytes(reinterpret_cast<std::uint8_t*>(&value), sizeof value);
    return value;
  }

  void TakeBytes(std::uint8_t* into, std::size_t size) {
    const std::size_t left = static_cast<std::size_t>(end_ - at_);
    const std::size_t taken = size < left ? size : left;
    if (taken > 0) std::memcpy(into, at_, taken);
    at_ += taken;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

// Buffer of exactly `size` bytes, zeroed, aligned to 16.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : bytes_(new std::uint8_t[size]()), size_(size) {}
  std::uint8_t* data() { return bytes_.get(); }
  std::size_t size() const { return size_; }
  kernel::Span<std::uint8_t> span() { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::size_t size_;
};

template <typename L>
void WriteHeader(std::uint8_t* base, std::uint32_t row_capacity, std::uint32_t arena_capacity) {
  auto* header = reinterpret_cast<layout::BatchHeader*>(base);
  header->magic = static_cast<std::uint32_t>(layout::kBatchMagic);
  header->layout_id = L::kId;
  header->row_capacity = row_capacity;
  header->arena_capacity = arena_capacity;
}

template <typename L>
Buffer EmptyBatch(std::uint32_t row_capacity) {
  Buffer buffer(static_cast<std::size_t>(L::Bytes(row_capacity)));
  WriteHeader<L>(buffer.data(), row_capacity, 0);
  return buffer;
}

inline Buffer EmptyRecords(std::uint32_t row_capacity, std::uint32_t arena_capacity) {
  Buffer buffer(static_cast<std::size_t>(layout::RecordBatch::Bytes(row_capacity, arena_capacity)));
  WriteHeader<layout::RecordBatch>(buffer.data(), row_capacity, arena_capacity);
  return buffer;
}

// Reads a record batch from the input.
inline Buffer TakeRecords(Input* input) {
  const auto lie = input->Take<std::uint8_t>();
  const auto lie_value = lie == 0 ? 0U : input->Take<std::uint32_t>();
  const auto cut = input->Take<std::uint8_t>();
  const auto spare = input->Take<std::uint8_t>();
  const auto rows = input->Take<std::uint8_t>();
  const auto arena = input->Take<std::uint16_t>();
  const auto unused = input->Take<std::uint16_t>();
  const auto capacity = static_cast<std::uint32_t>(rows + spare);
  Buffer whole = EmptyRecords(capacity, arena);
  auto* header = reinterpret_cast<layout::BatchHeader*>(whole.data());
  header->row_count = rows;
  header->arena_used = unused > arena ? 0U : static_cast<std::uint32_t>(arena - unused);
  const auto batch = layout::RecordBatch::Over(whole.data(), capacity);
  for (std::uint32_t row = 0; row < rows; row++) {
    batch.value_start[row] = input->Take<std::uint32_t>();
    batch.value_length[row] = input->Take<std::int32_t>();
  }
  input->TakeBytes(batch.arena, arena);
  if (lie != 0) {
    reinterpret_cast<std::uint32_t*>(whole.data())[1 + (lie - 1) % 7] = lie_value;
  }
  Buffer out(cut < whole.size() ? whole.size() - cut : 0);
  if (out.size() > 0) std::memcpy(out.data(), whole.data(), out.size());
  return out;
}

// Makes the unused arena inaccessible while the object lives.
class Fence {
 public:
  explicit Fence(const kernel::Rows<layout::RecordBatch>& records)
      : from_(records.at.arena + records.arena_used),
        size_(layout::Align(records.arena_capacity) - records.arena_used) {
    __asan_poison_memory_region(from_, size_);
  }
  ~Fence() { __asan_unpoison_memory_region(from_, size_); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

 private:
  const std::uint8_t* from_;
  std::size_t size_;
};

}  // namespace millrace::test

// Ends the process when a kernel breaks a promise, as a finding of a sanitizer does.
#define MILLRACE_CHECK(condition)                                                    \
  do {                                                                               \
    if (!(condition)) {                                                              \
      ::std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      ::std::abort();                                                                \
    }                                                                                \
  } while (false)
