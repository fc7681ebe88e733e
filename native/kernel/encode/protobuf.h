// Programs that encode columns as Protobuf payloads: PROTO_PUT words for each column, and tables:
// the numbers of closed enums, and the checks of binary messages, each the number of messages
// around the value and a program for Protobuf payloads. The compiler is
// src/formats/protobuf/columns/encode.ts, the reference implementation
// src/addon/reference/encode/protobuf.ts.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel/encode/encoder.h"

namespace millrace::kernel::encode {

// Opens a program. kBadArgument when a table or a word breaks a rule; `bad` is then a word of the
// code, or -1 for a table.
Status OpenProtobufEncoder(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                           Span<const std::int32_t> table, std::unique_ptr<Encoder>* out,
                           std::int64_t* bad);

}  // namespace millrace::kernel::encode
