// Fuzzes record batches: a hostile broker with right checksums. Input: u8 options (1: committed
// records only, 2: checksums stay as they are), u8 aborted transactions, i64 producer and i64 first
// offset of each, i64 first offset wanted, then the bytes of the partition. Whatever they say,
// spans lie within memory, offsets rise, and decompressed bytes keep to their limit.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "broker/wire/crc32c.h"
#include "broker/wire/record_batch.h"
#include "test/input.h"

namespace {

using namespace millrace;
namespace wire = broker::wire;

constexpr std::size_t kInflatedMax = 1 << 16;
constexpr std::size_t kCrcAt = 17;
constexpr std::size_t kCrcFrom = 21;

// Gives every whole batch its checksum, so that the records are reached.
void Mend(std::uint8_t* data, std::size_t size) {
  wire::BatchHead head;
  while (wire::ReadHead({data, size}, &head) == wire::HeadVerdict::kOk) {
    const std::uint32_t crc = wire::Crc32c(data + kCrcFrom, head.size - kCrcFrom);
    for (std::size_t i = 0; i < 4; i++)
      data[kCrcAt + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
    data += head.size;
    size -= head.size;
  }
}

// Reads every byte of a span, so that the sanitizer sees one outside.
std::uint64_t SumOf(const std::uint8_t* data, std::int64_t size) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < size; i++) sum += data[i];
  return sum;
}

std::uint64_t SumOf(const wire::Record& record) {
  std::uint64_t sum = SumOf(record.key, record.key_size) + SumOf(record.value, record.value_size);
  std::uint64_t payload = 0;
  const std::uint8_t* at = record.headers;
  for (std::uint32_t i = 0; i < record.header_count; i++) {
    wire::Header header{};
    at = wire::NextHeader(at, record.headers_end, &header);
    sum += SumOf(header.name.data, static_cast<std::int64_t>(header.name.size));
    sum += SumOf(header.value, header.value_size);
    payload += header.name.size + static_cast<std::uint64_t>(std::max(header.value_size, 0));
  }
  MILLRACE_CHECK(at == record.headers_end && payload == record.header_payload);
  return sum;
}

struct Found {
  std::uint64_t sum;
  std::int64_t next_offset;
  wire::Fault::Kind fault;
  bool operator==(const Found&) const = default;
};

// Reads all records; with a room, batches are inflated there, and with `moves` moved out again at
// their first record.
Found ReadAll(wire::PartitionRecords* records, std::int64_t from, const wire::Extent& extent,
              std::size_t room_bytes, bool moves) {
  using Step = wire::PartitionRecords::Step;
  test::Buffer room(room_bytes);
  std::int64_t last = from - (from > INT64_MIN ? 1 : 0);
  Found found{0, 0, wire::Fault::Kind::kNone};
  for (;;) {
    const bool opens = records->OpensNext();
    if (opens && room_bytes > 0) records->Offer({room.data(), room_bytes, UINT32_MAX, false});
    const Step step = records->Next();
    MILLRACE_CHECK(step != Step::kWait);
    if (step == Step::kFault) {
      MILLRACE_CHECK(!records->fault().text.empty());
      break;
    }
    if (step == Step::kEnd) {
      MILLRACE_CHECK(extent.is_faulty || records->next_offset() == extent.next_offset);
      break;
    }
    if (opens && moves && records->placed().size > 0) {
      records->Keep();
      records->MoveOut();
      std::fill(room.data(), room.data() + room_bytes, std::uint8_t{0xee});
      MILLRACE_CHECK(records->Next() == Step::kRecord);
    }
    const wire::Record& record = records->record();
    MILLRACE_CHECK(record.offset >= from && record.offset >= last);
    MILLRACE_CHECK(record.offset < records->next_offset());
    last = record.offset;
    found.sum = found.sum * 31 + SumOf(record);
  }
  found.next_offset = records->next_offset();
  found.fault = records->fault().kind;
  MILLRACE_CHECK(found.next_offset >= from);
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const auto options = input.Take<std::uint8_t>();
  std::vector<wire::Aborted> aborted(input.Take<std::uint8_t>() % 8);
  for (wire::Aborted& one : aborted) {
    one.producer_id = input.Take<std::int64_t>();
    one.first_offset = input.Take<std::int64_t>();
  }
  const auto from = input.Take<std::int64_t>();
  const std::size_t head = 10 + 16 * aborted.size();
  test::Buffer bytes(size > head ? size - head : 0);
  input.TakeBytes(bytes.data(), bytes.size());
  if ((options & 2) == 0) Mend(bytes.data(), bytes.size());
  const wire::Bytes all{bytes.data(), bytes.size()};
  const wire::Extent extent = wire::ExtentOf(all, from);
  MILLRACE_CHECK(extent.next_offset >= from);
  const auto read = [&](std::size_t room) {
    wire::Inflater inflater(kInflatedMax);
    // Every batch is expected to fit.
    inflater.record_bytes = room > 0 ? 1 : 0;
    wire::PartitionRecords records(all, from, (options & 1) != 0, aborted, &inflater);
    return ReadAll(&records, from, extent, room, (options & 4) != 0);
  };
  const Found plain = read(0);
  const Found placed = read(1 + std::size_t{options} * 8);
  MILLRACE_CHECK(plain == placed);
  return plain.sum == UINT64_MAX ? 1 : 0;
}
