// Memory of tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Zeroed rows, aligned to 64 bytes: from the heap when few, else mapped, on huge pages where the
// system has them.
class RowMemory {
 public:
  RowMemory() = default;
  ~RowMemory() { Free(); }
  RowMemory(RowMemory&& other) noexcept { *this = static_cast<RowMemory&&>(other); }
  RowMemory& operator=(RowMemory&& other) noexcept;
  RowMemory(const RowMemory&) = delete;
  RowMemory& operator=(const RowMemory&) = delete;

  // Replaces what is held. kNoMemory leaves nothing held. REQUIRES: rows is a power of two.
  Status Allocate(std::size_t rows);
  // Makes room for twice the rows: those that are there stay, the others are zero. kNoMemory leaves
  // all as it was.
  Status Double();
  void Free();

  Accumulator* rows() const { return rows_; }
  std::size_t size() const { return size_; }
  // How many rows from the first one there are to look at: all, unless its owner said less.
  std::size_t held() const { return held_; }
  void Hold(std::size_t rows) { held_ = rows; }
  std::size_t bytes() const { return size_ * sizeof(Accumulator); }

 private:
  Accumulator* rows_ = nullptr;
  std::size_t size_ = 0;
  std::size_t held_ = 0;
};

}  // namespace millrace::kernel
