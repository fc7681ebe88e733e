// Programs that encode columns as Avro payloads: AVRO_PUT words for each column, and the checks of
// binary columns. The compiler is src/formats/avro/columns/encode.ts, the reference implementation
// src/addon/reference/encode/avro.ts.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel/encode/encoder.h"

namespace millrace::kernel::encode {

// Opens a program. `tables` has the programs for Avro payloads that check binary columns.
// kBadArgument when a table or a word breaks a rule; `bad` is then a word of the code, or -1 for a
// table.
Status OpenAvroEncoder(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                       Span<const std::int32_t> table, std::unique_ptr<Encoder>* out,
                       std::int64_t* bad);

}  // namespace millrace::kernel::encode
