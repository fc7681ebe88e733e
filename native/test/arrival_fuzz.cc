// Fuzzes the arrival queue with damaged state. Input: u8 usual parameters when even, else 16
// doubles; u8 pool rows; 8 doubles of state (all zero: a fresh queue); u8 pairs, then for each u16
// list and i32 row as head and tail; then for each pool row a double arrival and an i32 next.
#include <cstdio>
#include <cstdlib>

#include "kernel/gen/events.h"
#include "test/input.h"

namespace {

using namespace millrace;
using kernel::Rows;
using kernel::Status;

constexpr std::size_t kParams = layout::GenParams::kBytes / sizeof(double);
constexpr std::size_t kState = layout::ArrivalState::kBytes / sizeof(double);
constexpr std::uint32_t kLists = layout::kArrivalWheelLevels * layout::kArrivalWheelSlots;
constexpr std::size_t kOut = 64;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr double kUsual[kParams] = {1,      0,  1,   0,     1,    1,   -1000,  2001,
                                             1.7e12, 20, 4e9, 4.2e9, 3000, 6e5, 1.08e7, 5000};
  test::Input input(data, size);
  double cells[kParams];
  const bool usual = input.Take<std::uint8_t>() % 2 == 0;
  for (std::size_t i = 0; i < kParams; i++) cells[i] = usual ? kUsual[i] : input.Take<double>();
  kernel::GenParams params;
  if (kernel::ReadGenParams({cells, kParams}, &params) != Status::kOk) return 0;

  const std::uint32_t rows = input.Take<std::uint8_t>() % 64 + 1;
  test::Buffer wheel_buffer = test::EmptyBatch<layout::ArrivalWheel>(kLists);
  test::Buffer pool_buffer = test::EmptyBatch<layout::ArrivalPool>(rows);
  Rows<layout::ArrivalWheel> wheel;
  Rows<layout::ArrivalPool> pool;
  MILLRACE_CHECK(kernel::View(wheel_buffer.span(), &wheel) == Status::kOk);
  MILLRACE_CHECK(kernel::View(pool_buffer.span(), &pool) == Status::kOk);
  for (std::uint32_t list = 0; list < kLists; list++) wheel.at.head[list] = -1;
  for (std::uint32_t row = 0; row < rows; row++) {
    pool.at.next[row] = row + 1 < rows ? static_cast<std::int32_t>(row + 1) : -1;
  }
  double state[kState];
  for (double& cell : state) cell = input.Take<double>();
  const auto pairs = input.Take<std::uint8_t>();
  for (std::uint32_t i = 0; i < pairs; i++) {
    const std::uint32_t list = input.Take<std::uint16_t>() % kLists;
    const auto row = input.Take<std::int32_t>();
    wheel.at.head[list] = row;
    wheel.at.tail[list] = row;
  }
  for (std::uint32_t row = 0; pairs > 0 && row < rows; row++) {
    pool.at.arrival[row] = input.Take<double>();
    pool.at.next[row] = input.Take<std::int32_t>();
  }

  test::Buffer seqs(kOut * sizeof(double));
  auto* out = reinterpret_cast<double*>(seqs.data());
  for (int call = 0; call < 3; call++) {
    std::size_t written = 0;
    const Status status =
        kernel::GenArrivals(params, {state, kState}, &wheel, &pool, {out, kOut}, &written);
    MILLRACE_CHECK(written <= kOut);
    if (status != Status::kOk) break;
  }
  return 0;
}
