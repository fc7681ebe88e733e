// Programs for Avro payloads. Instructions: AVRO_OP in docs/reference/layouts.md; the compiler is
// src/formats/avro/columns, the reference implementation src/addon/reference/codec/avro.ts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/batch.h"
#include "kernel/codec/columns.h"
#include "kernel/codec/decoder.h"
#include "kernel/span.h"

namespace millrace::kernel::codec {

// Checks that every operand is within its bounds, so that no payload makes the program access
// memory outside its arguments, or run without end. `bad` is the word of the first instruction that
// breaks a rule; -1 for a program.
void CheckAvroProgram(Span<const std::int32_t> code, std::size_t pool_bytes,
                      const std::vector<ColumnType>& types, std::int64_t* bad);

// Opens a program. kBadArgument when table or code break a rule; `bad` is then the word of the
// instruction, or -1 for the table.
Status OpenAvro(Span<const std::int32_t> code, Span<const std::uint8_t> pool,
                Span<const std::int32_t> table, std::unique_ptr<Decoder>* out, std::int64_t* bad);

}  // namespace millrace::kernel::codec
