#include "kernel/rows/memory.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace millrace::kernel {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Mapped memory that starts at a multiple of the huge page size; null when the system has none
// left.
void* Map(std::size_t bytes) {
  const std::size_t whole = bytes + kHugePage;
  void* at = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* const base = static_cast<std::uint8_t*>(at);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(base) % kHugePage;
  const std::size_t head = past == 0 ? 0 : kHugePage - past;
  if (head > 0) munmap(base, head);
  if (kHugePage - head > 0) munmap(base + head + bytes, kHugePage - head);
#ifdef MADV_HUGEPAGE
  // A failure means that the system has no huge pages; the memory then has ordinary pages.
  static_cast<void>(madvise(base + head, bytes, MADV_HUGEPAGE));
#endif
  return base + head;
}

bool IsMapped(std::size_t bytes) { return bytes >= kHugePage; }

}  // namespace

RowMemory& RowMemory::operator=(RowMemory&& other) noexcept {
  if (this == &other) return *this;
  Free();
  rows_ = other.rows_;
  size_ = std::exchange(other.size_, 0);
  held_ = std::exchange(other.held_, 0);
  other.rows_ = nullptr;
  return *this;
}

Status RowMemory::Allocate(std::size_t lines) {
  Free();
  const std::size_t bytes = lines * sizeof(Accumulator);
  if (bytes == 0) return Status::kOk;
  void* at = nullptr;
  if (IsMapped(bytes)) {
    at = Map(bytes);
  } else {
    at = std::aligned_alloc(64, bytes);
    if (at != nullptr) std::memset(at, 0, bytes);
  }
  if (at == nullptr) return Status::kNoMemory;
  rows_ = static_cast<Accumulator*>(at);
  size_ = held_ = lines;
  return Status::kOk;
}

Status RowMemory::Double() {
#ifdef MREMAP_FIXED
  // mremap moves the pages without a copy; new pages are touched only when they are used.
  if (IsMapped(bytes())) {
    void* const target = Map(bytes() * 2);
    if (target == nullptr) return Status::kNoMemory;
    if (mremap(rows_, bytes(), bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED) {
      munmap(target, bytes() * 2);
      return Status::kNoMemory;
    }
    rows_ = static_cast<Accumulator*>(target);
    size_ *= 2;
    held_ = size_;
    return Status::kOk;
  }
#endif
  RowMemory larger;
  const Status status = larger.Allocate(size_ * 2);
  if (status != Status::kOk) return status;
  std::memcpy(larger.rows_, rows_, bytes());
  *this = static_cast<RowMemory&&>(larger);
  return Status::kOk;
}

void RowMemory::Free() {
  if (rows_ == nullptr) return;
  if (IsMapped(bytes())) {
    munmap(rows_, bytes());
  } else {
    std::free(rows_);
  }
  rows_ = nullptr;
  size_ = held_ = 0;
}

}  // namespace millrace::kernel
