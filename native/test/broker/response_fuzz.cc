// Fuzzes the readers of responses. Input: u8 kind of the response, then its bytes. A reader reads
// nothing outside of them, and what it returns lies within them.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "broker/wire/messages.h"
#include "broker/wire/sasl.h"
#include "test/input.h"

namespace {

using namespace millrace;
namespace wire = broker::wire;

void CheckInside(const test::Buffer& all, std::string_view text) {
  if (text.empty()) return;
  const auto* at = reinterpret_cast<const std::uint8_t*>(text.data());
  auto& buffer = const_cast<test::Buffer&>(all);
  MILLRACE_CHECK(at >= buffer.data() && at + text.size() <= buffer.data() + buffer.size());
}

void CheckFetch(const test::Buffer& all, wire::Bytes bytes) {
  wire::Fetched fetched;
  if (!wire::ReadFetch(bytes, &fetched)) return;
  MILLRACE_CHECK(fetched.rows.size() <= bytes.size);
  for (const wire::FetchedRow& row : fetched.rows) {
    CheckInside(all, row.topic);
    CheckInside(all, {reinterpret_cast<const char*>(row.records.data), row.records.size});
    MILLRACE_CHECK(row.aborted.size() <= bytes.size / 16);
  }
}

void CheckMetadata(const test::Buffer& all, wire::Bytes bytes) {
  wire::Metadata metadata;
  if (!wire::ReadMetadata(bytes, &metadata)) return;
  for (const wire::BrokerRow& row : metadata.brokers) CheckInside(all, row.host);
  for (const wire::LeaderRow& row : metadata.leaders) CheckInside(all, row.topic);
}

void CheckSasl(const test::Buffer& all, wire::Bytes bytes) {
  wire::SaslAnswer answer;
  if (!wire::ReadSaslAuthenticate(bytes, &answer)) return;
  CheckInside(all, answer.text);
  CheckInside(all, answer.message);
  const auto scram = wire::MakeSasl("SCRAM-SHA-256", "user", "password", "nonce");
  std::string reply;
  std::string error;
  bool is_done = false;
  const bool is_taken = scram->Answer(answer.message, &reply, &is_done, &error);
  MILLRACE_CHECK(is_taken ? !reply.empty() : !error.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const auto kind = input.Take<std::uint8_t>();
  test::Buffer all(size > 0 ? size - 1 : 0);
  input.TakeBytes(all.data(), all.size());
  const wire::Bytes bytes{all.data(), all.size()};
  switch (kind % 6) {
    case 0:
      CheckFetch(all, bytes);
      break;
    case 1:
      CheckMetadata(all, bytes);
      break;
    case 2: {
      std::int32_t throttle_ms = 0;
      std::vector<wire::ListedRow> rows;
      if (wire::ReadListOffsets(bytes, &throttle_ms, &rows)) {
        for (const wire::ListedRow& row : rows) CheckInside(all, row.topic);
      }
      break;
    }
    case 3: {
      std::int16_t error = 0;
      std::vector<wire::ApiRange> ranges;
      if (wire::ReadApiVersions(bytes, &error, &ranges)) static_cast<void>(wire::MissingApi(ranges));
      break;
    }
    case 4: {
      wire::SaslHandshake handshake;
      static_cast<void>(wire::ReadSaslHandshake(bytes, &handshake));
      break;
    }
    default:
      CheckSasl(all, bytes);
  }
  return 0;
}
