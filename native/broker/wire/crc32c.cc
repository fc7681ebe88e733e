#include "broker/wire/crc32c.h"

#include <cstring>

namespace millrace::broker::wire {
namespace {

// The polynomial, with its bits reversed.
constexpr std::uint32_t kPolynomial = 0x82f63b78U;
constexpr std::size_t kSlices = 8;

struct Tables {
  // cell[k][byte]: the register after `byte` and k zero bytes.
  std::uint32_t cell[kSlices][256];
};

constexpr Tables MakeTables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; byte++) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0);
    tables.cell[0][byte] = crc;
  }
  for (std::size_t k = 1; k < kSlices; k++) {
    for (std::size_t byte = 0; byte < 256; byte++) {
      const std::uint32_t before = tables.cell[k - 1][byte];
      tables.cell[k][byte] = (before >> 8) ^ tables.cell[0][before & 0xffU];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

std::uint32_t UpdateByTables(std::uint32_t crc, const std::uint8_t* data, std::size_t size) {
  const auto& cell = kTables.cell;
  for (; size >= 8; size -= 8, data += 8) {
    const std::uint32_t low =
        crc ^
        (static_cast<std::uint32_t>(data[0]) | (static_cast<std::uint32_t>(data[1]) << 8) |
         (static_cast<std::uint32_t>(data[2]) << 16) | (static_cast<std::uint32_t>(data[3]) << 24));
    crc = cell[7][low & 0xffU] ^ cell[6][(low >> 8) & 0xffU] ^ cell[5][(low >> 16) & 0xffU] ^
          cell[4][low >> 24] ^ cell[3][data[4]] ^ cell[2][data[5]] ^ cell[1][data[6]] ^
          cell[0][data[7]];
  }
  for (; size > 0; size--, data++) crc = (crc >> 8) ^ cell[0][(crc ^ *data) & 0xffU];
  return crc;
}

#if defined(__x86_64__)

// Bytes of one of three streams that are summed beside each other, because the instruction has a
// latency of three cycles and a throughput of one.
constexpr std::size_t kStreamBytes = 1024;

constexpr std::size_t kLineBytes = 64;

struct ShiftTables {
  std::uint32_t cell[4][256];
};

// The register is linear: its value after `zeros` zero bytes is the sum of those of its bits.
ShiftTables MakeShift(std::size_t zeros) {
  std::uint32_t of_bit[32];
  for (std::uint32_t bit = 0; bit < 32; bit++) {
    std::uint32_t crc = 1U << bit;
    for (std::size_t i = 0; i < zeros; i++) crc = (crc >> 8) ^ kTables.cell[0][crc & 0xffU];
    of_bit[bit] = crc;
  }
  ShiftTables tables{};
  for (std::size_t k = 0; k < 4; k++) {
    for (std::uint32_t byte = 0; byte < 256; byte++) {
      for (std::uint32_t bit = 0; bit < 8; bit++) {
        if ((byte >> bit & 1U) != 0) tables.cell[k][byte] ^= of_bit[8 * k + bit];
      }
    }
  }
  return tables;
}

inline std::uint32_t Shift(const ShiftTables& tables, std::uint32_t crc) {
  return tables.cell[0][crc & 0xffU] ^ tables.cell[1][(crc >> 8) & 0xffU] ^
         tables.cell[2][(crc >> 16) & 0xffU] ^ tables.cell[3][crc >> 24];
}

inline std::uint64_t Word(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t UpdateByInstruction(std::uint32_t crc,
                                                                    const std::uint8_t* data,
                                                                    std::size_t size) {
  static const ShiftTables shift = MakeShift(kStreamBytes);
  for (; size >= 3 * kStreamBytes; size -= 3 * kStreamBytes, data += 3 * kStreamBytes) {
    std::uint64_t first = crc;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStreamBytes; i += 8) {
      // Received bytes come from memory, and three short streams defeat the processor's own
      // prefetching: the next block of all three is fetched line by line.
      if (i % kLineBytes == 0) {
        for (std::size_t line = 0; line < 3; line++)
          __builtin_prefetch(data + 3 * kStreamBytes + 3 * i + line * kLineBytes);
      }
      first = __builtin_ia32_crc32di(first, Word(data + i));
      second = __builtin_ia32_crc32di(second, Word(data + kStreamBytes + i));
      third = __builtin_ia32_crc32di(third, Word(data + 2 * kStreamBytes + i));
    }
    crc = Shift(shift, static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    crc = Shift(shift, crc) ^ static_cast<std::uint32_t>(third);
  }
  std::uint64_t wide = crc;
  for (; size >= 8; size -= 8, data += 8) wide = __builtin_ia32_crc32di(wide, Word(data));
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; size--, data++) crc = __builtin_ia32_crc32qi(crc, *data);
  return crc;
}

#endif

}  // namespace

std::uint32_t Crc32cByTables(const std::uint8_t* data, std::size_t size) {
  return ~UpdateByTables(~0U, data, size);
}

std::uint32_t Crc32c(const std::uint8_t* data, std::size_t size) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~UpdateByInstruction(~0U, data, size);
#endif
  return Crc32cByTables(data, size);
}

}  // namespace millrace::broker::wire
