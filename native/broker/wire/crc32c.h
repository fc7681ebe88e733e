// CRC-32C (Castagnoli), the checksum of a record batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::broker::wire {

// Uses the instruction of the processor where there is one.
std::uint32_t Crc32c(const std::uint8_t* data, std::size_t size);
// The same by tables, on any processor.
std::uint32_t Crc32cByTables(const std::uint8_t* data, std::size_t size);

}  // namespace millrace::broker::wire
