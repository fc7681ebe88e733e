// Fuzzes programs that encode columns as Avro payloads, with hostile code, columns and buffers.
// Input: encode_input.h.
#include "kernel/encode/avro.h"
#include "test/codec/encode_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return millrace::test::FuzzEncoder(millrace::kernel::encode::OpenAvroEncoder, data, size);
}
