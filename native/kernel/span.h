// Pointer and number of cells that may be accessed behind it. LIFETIME: borrowed.
#pragma once

#include <cstddef>

namespace millrace::kernel {

template <typename T>
struct Span {
  T* data = nullptr;
  std::size_t size = 0;
};

}  // namespace millrace::kernel
