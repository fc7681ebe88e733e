// Fuzzes programs for Protobuf payloads with hostile code, columns and payloads. Input: u16 words
// of the column table, u16 words of code, u16 bytes of each buffer, u8 rows, then table and code,
// then u16 length and bytes of each payload.
#include <memory>
#include <vector>

#include "kernel/codec/protobuf.h"
#include "test/column_batch.h"
#include "test/input.h"

using namespace millrace;
using kernel::Status;
using kernel::codec::Decoder;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const auto table_words = input.Take<std::uint16_t>();
  const auto code_words = input.Take<std::uint16_t>();
  const auto capacity = input.Take<std::uint16_t>();
  const auto rows = input.Take<std::uint8_t>();
  if (table_words + code_words > 4096) return 0;
  const std::vector<std::int32_t> table = test::TakeWords(&input, table_words);
  const std::vector<std::int32_t> code = test::TakeWords(&input, code_words);
  std::unique_ptr<Decoder> decoder;
  std::int64_t bad = -1;
  const Status status = kernel::codec::OpenProtobuf({code.data(), code.size()},
                                                    {table.data(), table.size()}, &decoder, &bad);
  MILLRACE_CHECK((status == Status::kOk) == (decoder != nullptr));
  if (decoder == nullptr) return 0;
  // An offset buffer has at least its first offset.
  test::Batch batch(table.size() / layout::kColumnCellCount, rows, capacity < 4 ? 4 : capacity);
  for (std::uint32_t row = 0; row < rows; row++) {
    test::Buffer payload(input.Take<std::uint16_t>() & 0x3ffU);
    input.TakeBytes(payload.data(), payload.size());
    if (!test::DecodeRow(decoder.get(), &payload, row, &batch)) return 0;
  }
  return 0;
}
