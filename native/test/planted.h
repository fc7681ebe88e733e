// Faults that are asked for by name, which prove that the sanitizers are awake.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "test/input.h"

namespace millrace::test {

// What a program that was asked for a fault ends with, where no sanitizer stopped it; nothing when
// it was not asked.
inline std::optional<int> PlantedFault(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "overrun") == 0) {
    // A read one byte too far.
    Buffer buffer(64);
    const volatile std::uint8_t* bytes = buffer.data();
    return bytes[64];
  }
  if (argc > 1 && std::strcmp(argv[1], "overflow") == 0) {
    volatile std::int32_t most = INT32_MAX;
    most = most + argc;
    return most == 0 ? 1 : 0;
  }
  return std::nullopt;
}

}  // namespace millrace::test
