// Check of UTF-8: no surrogates, nothing beyond U+10FFFF, and each character in its shortest form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::kernel::codec {

bool IsUtf8(const std::uint8_t* text, std::size_t size);

}  // namespace millrace::kernel::codec
