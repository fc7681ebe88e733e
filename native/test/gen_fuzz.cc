// Fuzzes the generator with hostile parameters, noise and digests. Input: 16 doubles (zero selects
// a usual value), u8 rows, u16 arena bytes, doubles as event numbers, then bytes to digest.
#include <cstdio>
#include <cstdlib>

#include "kernel/gen/events.h"
#include "kernel/xxh32.h"
#include "test/input.h"

namespace {

using namespace millrace;
using kernel::Rows;
using kernel::Status;

constexpr std::size_t kParams = layout::GenParams::kBytes / sizeof(double);

// Table with one run of `ranks` ranks that accepts every draw.
test::Buffer UniformRanks(std::uint32_t ranks) {
  test::Buffer buffer = test::EmptyBatch<layout::ZipfTable>(1);
  reinterpret_cast<layout::BatchHeader*>(buffer.data())->row_count = 1;
  const auto table = layout::ZipfTable::Over(buffer.data(), 1);
  table.cut[0] = 1;
  table.top[0] = 1;
  table.sure[0] = 1;
  table.first[0] = 1;
  table.size[0] = ranks;
  return buffer;
}

void Digest(test::Input* input) {
  std::uint32_t whole[layout::kXxh32Words] = {};
  std::uint32_t parts[layout::kXxh32Words] = {};
  std::uint8_t bytes[100];
  input->TakeBytes(bytes, sizeof bytes);
  const std::size_t cut = bytes[0] % sizeof bytes;
  kernel::Xxh32Update(whole, bytes, sizeof bytes);
  kernel::Xxh32Update(parts, bytes, cut);
  kernel::Xxh32Update(parts, bytes + cut, sizeof bytes - cut);
  MILLRACE_CHECK(std::memcmp(whole, parts, 7 * sizeof(std::uint32_t)) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr double kUsual[kParams] = {1,      0,   1,   0,     1,    1,   -1000,  2001,
                                             1.7e12, 200, 4e9, 4.2e9, 5000, 6e5, 1.08e7, 5000};
  test::Input input(data, size);
  double cells[kParams];
  for (std::size_t i = 0; i < kParams; i++) {
    const auto cell = input.Take<double>();
    cells[i] = cell == 0 ? kUsual[i] : cell;
  }
  kernel::GenParams params;
  if (kernel::ReadGenParams({cells, kParams}, &params) != Status::kOk) return 0;

  const auto rows = input.Take<std::uint8_t>();
  const auto arena = input.Take<std::uint16_t>();
  test::Buffer zipf_buffer = UniformRanks(1000);
  Rows<layout::ZipfTable> zipf;
  MILLRACE_CHECK(kernel::View(zipf_buffer.span(), &zipf) == Status::kOk);
  double seqs[16];
  for (double& seq : seqs) seq = input.Take<double>();
  test::Buffer noise(layout::kGenNoiseBytes);
  test::Buffer record_buffer = test::EmptyRecords(rows, arena);
  Rows<layout::RecordBatch> records;
  MILLRACE_CHECK(kernel::View(record_buffer.span(), &records) == Status::kOk);
  const Status made = kernel::GenRecords(params, zipf, noise.span(), {seqs, 16}, 16, &records);
  test::Buffer event_buffer = test::EmptyBatch<layout::EventBatch>(rows);
  Rows<layout::EventBatch> events;
  MILLRACE_CHECK(kernel::View(event_buffer.span(), &events) == Status::kOk);
  const Status decoded = kernel::GenEvents(params, zipf, {seqs, 16}, 16, &events);
  if (made == Status::kOk) {
    MILLRACE_CHECK(decoded == Status::kOk);
    for (std::uint32_t row = 0; row < 16; row++) {
      const std::uint8_t* value = records.at.arena + records.at.value_start[row];
      MILLRACE_CHECK(std::memcmp(value, &events.at.account_id[row], 8) == 0);
      MILLRACE_CHECK(std::memcmp(value + 24, &events.at.seq[row], 8) == 0);
    }
  }
  Digest(&input);
  return 0;
}
