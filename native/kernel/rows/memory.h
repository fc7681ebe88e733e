// Memory of hash tables and of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Owning array of zeroed lines of 64 bytes, aligned to 64 bytes; a row is one or more of them.
// Small arrays come from the heap; large ones are mapped, on huge pages where the system has them.
class RowMemory {
 public:
  RowMemory() = default;
  ~RowMemory() { Free(); }
  RowMemory(RowMemory&& other) noexcept { *this = static_cast<RowMemory&&>(other); }
  RowMemory& operator=(RowMemory&& other) noexcept;
  RowMemory(const RowMemory&) = delete;
  RowMemory& operator=(const RowMemory&) = delete;

  // Replaces the array by a zeroed one. kNoMemory leaves the object empty. REQUIRES: an array of 2
  // MiB or more is a multiple of the page size.
  Status Allocate(std::size_t lines);
  // Doubles the size: existing lines keep their content, new lines are zero. kNoMemory leaves the
  // array unchanged.
  Status Double();
  void Free();

  Accumulator* rows() const { return rows_; }
  std::size_t size() const { return size_; }
  // Number of leading lines that a reader has to visit: size(), unless Hold() set fewer.
  std::size_t held() const { return held_; }
  void Hold(std::size_t lines) { held_ = lines; }
  std::size_t bytes() const { return size_ * sizeof(Accumulator); }

 private:
  Accumulator* rows_ = nullptr;
  std::size_t size_ = 0;
  std::size_t held_ = 0;
};

}  // namespace millrace::kernel
