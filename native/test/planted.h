// Faults that are requested by name: they prove that the sanitizers are active.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

#include "kernel/invariant.h"
#include "test/input.h"

namespace millrace::test {

// Plants the fault that the arguments request. Returns the exit code where no sanitizer stopped the
// program; no value when no fault was requested.
inline std::optional<int> PlantedFault(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "overrun") == 0) {
    // Reads one byte beyond the buffer.
    Buffer buffer(64);
    const volatile std::uint8_t* bytes = buffer.data();
    return bytes[64];
  }
  if (argc > 1 && std::strcmp(argv[1], "overflow") == 0) {
    volatile std::int32_t most = INT32_MAX;
    most = most + argc;
    return most == 0 ? 1 : 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "race") == 0) {
    // Two threads write one number without an order.
    volatile int number = argc;
    std::thread other([&number] { number = number + 1; });
    number = number + 1;
    other.join();
    return number == 0 ? 1 : 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "check") == 0) MILLRACE_INVARIANT(argc == 1);
  return std::nullopt;
}

}  // namespace millrace::test
