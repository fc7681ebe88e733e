// Unit checks of the direct client's reading: checksums, compression within a limit, records,
// transactions, faults, and the vectors of SCRAM.
#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "broker/direct/turns.h"
#include "broker/wire/crc32c.h"
#include "broker/wire/record_batch.h"
#include "broker/wire/sasl.h"
#include "test/broker/batches.h"
#include "test/input.h"
#include "test/planted.h"
#include "test/random.h"

namespace {

using namespace millrace;
namespace wire = broker::wire;
namespace direct = broker::direct;
using wire::Codec;
using Step = wire::PartitionRecords::Step;

constexpr std::int16_t kAppendTime = 0x08;
constexpr std::int16_t kTransactional = 0x10;
constexpr std::int16_t kControl = 0x20;

const std::uint8_t* Raw(const std::string& text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}
wire::Bytes BytesOf(const std::string& text) { return {Raw(text), text.size()}; }

std::string Compressed(Codec codec, const std::string& text) {
  std::string out(text.size() + text.size() / 2 + 4096, '\0');
  std::size_t size = out.size();
  if (codec == Codec::kGzip) {
    z_stream stream{};
    MILLRACE_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    stream.next_in = const_cast<Bytef*>(Raw(text));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    MILLRACE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    size = stream.total_out;
    deflateEnd(&stream);
  } else if (codec == Codec::kSnappy) {
    MILLRACE_CHECK(snappy_compress(text.data(), text.size(), out.data(), &size) == SNAPPY_OK);
  } else if (codec == Codec::kLz4) {
    size = LZ4F_compressFrame(out.data(), out.size(), text.data(), text.size(), nullptr);
  } else if (codec == Codec::kZstd) {
    size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1);
  } else {
    return text;
  }
  out.resize(size);
  return out;
}

void ChecksumsHaveTheirVectors() {
  const std::string digits = "123456789";
  MILLRACE_CHECK(wire::Crc32c(Raw(digits), digits.size()) == 0xe3069283U);
  test::Random random(1);
  test::Buffer buffer(20'000);
  for (std::size_t i = 0; i < buffer.size(); i++)
    buffer.data()[i] = static_cast<std::uint8_t>(random.Next());
  for (int i = 0; i < 300; i++) {
    const std::size_t from = random.Below(64);
    const std::size_t size = random.Below(buffer.size() - from);
    MILLRACE_CHECK(wire::Crc32c(buffer.data() + from, size) ==
                   wire::Crc32cByTables(buffer.data() + from, size));
  }
}

constexpr Codec kCodecs[] = {Codec::kNone, Codec::kGzip, Codec::kSnappy, Codec::kLz4, Codec::kZstd};

void CodecsAreUndoneWithinTheLimit() {
  std::string text;
  for (int i = 0; i < 50'000; i++) text += static_cast<char>('a' + i % 1000 * i % 7);
  for (const Codec codec : kCodecs) {
    if (codec == Codec::kNone) continue;
    const std::string packed = Compressed(codec, text);
    wire::Inflater inflater(text.size());
    wire::Bytes out;
    for (int again = 0; again < 2; again++) {
      MILLRACE_CHECK(inflater.Inflate(codec, BytesOf(packed), &out) == wire::Inflation::kDone);
      MILLRACE_CHECK(std::string(reinterpret_cast<const char*>(out.data), out.size) == text);
    }
    wire::Inflater small(text.size() - 1);
    MILLRACE_CHECK(small.Inflate(codec, BytesOf(packed), &out) == wire::Inflation::kTooLarge);
    for (const std::size_t cut : {packed.size() / 2, packed.size() - 1, std::size_t{3}}) {
      MILLRACE_CHECK(inflater.Inflate(codec, {Raw(packed), cut}, &out) == wire::Inflation::kBad);
    }
  }
  // Blocks of the Java client, and two gzip members.
  const std::string block = Compressed(Codec::kSnappy, "xerial ");
  std::string framed("\x82SNAPPY\0\0\0\0\1\0\0\0\1", 16);
  for (int i = 0; i < 2; i++) {
    test::PutNumber(&framed, block.size(), 4);
    framed += block;
  }
  wire::Inflater inflater(1000);
  wire::Bytes out;
  MILLRACE_CHECK(inflater.Inflate(Codec::kSnappy, BytesOf(framed), &out) == wire::Inflation::kDone);
  MILLRACE_CHECK(std::string(reinterpret_cast<const char*>(out.data), out.size) ==
                 "xerial xerial ");
  const std::string member = Compressed(Codec::kGzip, "one");
  MILLRACE_CHECK(inflater.Inflate(Codec::kGzip, BytesOf(member + member), &out) ==
                 wire::Inflation::kDone);
  MILLRACE_CHECK(out.size == 6);
}

const std::string kKey = "key";
const std::string kValue = "value";
const std::string kEmpty;

std::vector<test::PlainRecord> ThreeRecords() {
  return {{0, 5, &kKey, &kValue, {{"name", &kValue}, {"null", nullptr}}},
          {1, -7, nullptr, nullptr, {}},
          {4, 0, &kEmpty, &kEmpty, {}}};
}

test::PlainBatch ThreeOf(Codec codec, std::int64_t base_offset) {
  test::PlainBatch batch;
  batch.base_offset = base_offset;
  batch.attributes = static_cast<std::int16_t>(codec);
  batch.last_offset_delta = 6;
  batch.count = 3;
  batch.records = Compressed(codec, test::RecordsOf(ThreeRecords()));
  return batch;
}

// Offsets of all records, behind which follows `end`.
std::vector<std::int64_t> OffsetsOf(const std::string& bytes, std::int64_t from, bool committed,
                                    std::vector<wire::Aborted> aborted, std::int64_t end) {
  wire::Inflater inflater(1 << 20);
  wire::PartitionRecords records(BytesOf(bytes), from, committed, std::move(aborted), &inflater);
  std::vector<std::int64_t> offsets;
  Step step = Step::kRecord;
  while ((step = records.Next()) == Step::kRecord) offsets.push_back(records.record().offset);
  MILLRACE_CHECK(step == Step::kEnd && records.next_offset() == end);
  MILLRACE_CHECK(wire::ExtentOf(BytesOf(bytes), from).next_offset == end);
  return offsets;
}

void RecordsHaveTheirFields() {
  for (const Codec codec : kCodecs) {
    const std::string bytes = test::BatchOf(ThreeOf(codec, 100));
    wire::Inflater inflater(1 << 20);
    wire::PartitionRecords records(BytesOf(bytes), 0, true, {}, &inflater);
    MILLRACE_CHECK(records.Next() == Step::kRecord);
    const wire::Record& first = records.record();
    MILLRACE_CHECK(first.offset == 100 && first.timestamp == 1005 && !first.is_append_time);
    MILLRACE_CHECK(first.key_size == 3 && first.value_size == 5 && first.header_count == 2);
    MILLRACE_CHECK(first.header_payload == 4 + 5 + 4);
    wire::Header header{};
    wire::NextHeader(wire::NextHeader(first.headers, first.headers_end, &header), first.headers_end,
                     &header);
    MILLRACE_CHECK(header.name.size == 4 && header.value_size == -1);
    records.Keep();
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 100);
    MILLRACE_CHECK(records.Next() == Step::kRecord);
    MILLRACE_CHECK(records.record().offset == 101 && records.record().timestamp == 993);
    MILLRACE_CHECK(records.record().key_size == -1 && records.record().value_size == -1);
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 104);
    MILLRACE_CHECK(records.record().key_size == 0 && records.record().value_size == 0);
    MILLRACE_CHECK(records.Next() == Step::kEnd && records.next_offset() == 107);
  }
  test::PlainBatch stamped = ThreeOf(Codec::kNone, 0);
  stamped.attributes = kAppendTime;
  const std::string bytes = test::BatchOf(stamped);
  wire::Inflater inflater(1 << 20);
  wire::PartitionRecords records(BytesOf(bytes), 0, true, {}, &inflater);
  MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().timestamp == 2000 &&
                 records.record().is_append_time);
}

bool IsIn(const std::string& room, const wire::Bytes& bytes) {
  return bytes.data >= Raw(room) && bytes.data + bytes.size <= Raw(room) + room.size();
}

// Reads two batches of a codec, the second one with an offer of this room.
wire::PartitionRecords SecondOf(const std::string& bytes, wire::Inflater* inflater,
                                const wire::PartitionRecords::Room& room) {
  wire::PartitionRecords records(BytesOf(bytes), 0, true, {}, inflater);
  MILLRACE_CHECK(records.OpensNext());
  for (int i = 0; i < 3; i++) MILLRACE_CHECK(records.Next() == Step::kRecord);
  MILLRACE_CHECK(records.placed().size == 0 && records.OpensNext());
  records.Offer(room);
  return records;
}

void ABatchIsInflatedToTheRoomThatHoldsIt() {
  for (const Codec codec : kCodecs) {
    const std::string bytes = test::BatchOf(ThreeOf(codec, 0)) + test::BatchOf(ThreeOf(codec, 7));
    std::string room(4096, '\0');
    auto* at = reinterpret_cast<std::uint8_t*>(room.data());
    wire::Inflater inflater(1 << 20);
    wire::PartitionRecords records = SecondOf(bytes, &inflater, {at, room.size(), 3, true});
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 7);
    const bool is_placed = codec != Codec::kNone;
    MILLRACE_CHECK((records.placed().size > 0) == is_placed);
    if (is_placed) MILLRACE_CHECK(IsIn(room, {records.record().value, 5}));
    MILLRACE_CHECK(!records.OpensNext());
    records.Keep();
    if (is_placed) records.MoveOut();
    room.assign(room.size(), 'x');
    MILLRACE_CHECK(records.placed().size == 0);
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 7);
    MILLRACE_CHECK(!IsIn(room, {records.record().value, 5}));
    MILLRACE_CHECK(std::memcmp(records.record().value, kValue.data(), 5) == 0);
    wire::Header header{};
    wire::NextHeader(records.record().headers, records.record().headers_end, &header);
    MILLRACE_CHECK(header.name.size == 4);
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 8);
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 11);
    MILLRACE_CHECK(records.Next() == Step::kEnd && records.next_offset() == 14);
  }
}

void ABatchThatDoesNotFitWaitsOrIsInflatedElsewhere() {
  for (const Codec codec : kCodecs) {
    if (codec == Codec::kNone) continue;
    const std::string bytes = test::BatchOf(ThreeOf(codec, 0)) + test::BatchOf(ThreeOf(codec, 7));
    std::string room(4096, '\0');
    auto* at = reinterpret_cast<std::uint8_t*>(room.data());
    for (const wire::PartitionRecords::Room& small :
         {wire::PartitionRecords::Room{at, room.size(), 2, true},
          wire::PartitionRecords::Room{at, 10, 3, true}}) {
      wire::Inflater inflater(1 << 20);
      wire::PartitionRecords records = SecondOf(bytes, &inflater, small);
      MILLRACE_CHECK(records.Next() == Step::kWait && records.OpensNext());
      wire::PartitionRecords::Room stays = small;
      stays.may_wait = false;
      records.Offer(stays);
      MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 7);
      MILLRACE_CHECK(records.placed().size == 0 && !IsIn(room, {records.record().value, 5}));
      MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 8);
    }
    // Expected to fit, and larger than its records before.
    wire::Inflater inflater(1 << 20);
    inflater.record_bytes = 1;
    wire::PartitionRecords records(BytesOf(bytes), 0, true, {}, &inflater);
    records.Offer({at, 10, 3, true});
    MILLRACE_CHECK(records.Next() == Step::kRecord && records.record().offset == 0);
    MILLRACE_CHECK(records.placed().size == 0);
    MILLRACE_CHECK(std::memcmp(records.record().value, kValue.data(), 5) == 0);
  }
}

void ReadingBeginsInsideABatchAndEndsBeforeACutOne() {
  const std::string two =
      test::BatchOf(ThreeOf(Codec::kLz4, 0)) + test::BatchOf(ThreeOf(Codec::kNone, 7));
  using Offsets = std::vector<std::int64_t>;
  MILLRACE_CHECK((OffsetsOf(two, 1, true, {}, 14) == Offsets{1, 4, 7, 8, 11}));
  MILLRACE_CHECK((OffsetsOf(two, 7, true, {}, 14) == Offsets{7, 8, 11}));
  for (std::size_t cut = 1; cut < 60; cut += 13)
    MILLRACE_CHECK(
        (OffsetsOf(two.substr(0, two.size() - cut), 0, true, {}, 7) == Offsets{0, 1, 4}));
  MILLRACE_CHECK(OffsetsOf("", 5, true, {}, 5).empty());
}

std::string Marker(std::int64_t offset, std::int64_t producer, bool commits) {
  std::string key;
  test::PutNumber(&key, 0, 2);
  test::PutNumber(&key, commits ? 1 : 0, 2);
  test::PlainBatch batch;
  batch.base_offset = offset;
  batch.attributes = kTransactional | kControl;
  batch.producer_id = producer;
  batch.count = 1;
  batch.records = test::RecordsOf({{0, 0, &key, &kEmpty, {}}});
  return test::BatchOf(batch);
}

std::string Transacted(std::int64_t offset, std::int64_t producer) {
  test::PlainBatch batch;
  batch.base_offset = offset;
  batch.attributes = kTransactional;
  batch.producer_id = producer;
  batch.count = 1;
  batch.records = test::RecordsOf({{0, 0, &kKey, &kValue, {}}});
  return test::BatchOf(batch);
}

void AbortedTransactionsAndMarkersAreSkipped() {
  using Offsets = std::vector<std::int64_t>;
  const std::string log = Transacted(0, 1) + Transacted(1, 2) + Marker(2, 1, false) +
                          Transacted(3, 1) + Marker(4, 2, true) + Marker(5, 1, true) +
                          test::BatchOf(ThreeOf(Codec::kZstd, 6)) + Transacted(13, 1) +
                          Marker(14, 1, false);
  const std::vector<wire::Aborted> aborted{{1, 13}, {1, 0}};
  MILLRACE_CHECK((OffsetsOf(log, 0, true, aborted, 15) == Offsets{1, 3, 6, 7, 10}));
  MILLRACE_CHECK((OffsetsOf(log, 0, false, aborted, 15) == Offsets{0, 1, 3, 6, 7, 10, 13}));
  // The transaction began before the offset from which is read.
  const std::string open = Transacted(20, 9) + Transacted(21, 9) + Marker(22, 9, false);
  MILLRACE_CHECK(OffsetsOf(open, 21, true, {{9, 20}}, 23).empty());
}

wire::Fault::Kind FaultOf(const std::string& bytes, std::size_t inflated_max = 1 << 20) {
  wire::Inflater inflater(inflated_max);
  wire::PartitionRecords records(BytesOf(bytes), 0, true, {}, &inflater);
  while (records.Next() == Step::kRecord) {
  }
  return records.fault().kind;
}

void FaultsAreNamed() {
  using Kind = wire::Fault::Kind;
  const std::string sound = test::BatchOf(ThreeOf(Codec::kNone, 0));
  for (std::size_t at = 21; at < sound.size(); at++) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    MILLRACE_CHECK(FaultOf(damaged) == Kind::kBadCrc);
  }
  MILLRACE_CHECK(FaultOf(sound.substr(0, 40)) == Kind::kBad);
  test::PlainBatch one = ThreeOf(Codec::kNone, 0);
  one.magic = 1;
  MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kOldFormat);
  one.magic = 3;
  MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kBad);
  one = ThreeOf(Codec::kNone, 0);
  for (const std::int32_t count : {2, 4, 1'000'000, -1}) {
    one.count = count;
    MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kBad);
  }
  one = ThreeOf(Codec::kNone, 0);
  one.last_offset_delta = 3;
  MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kBad);
  one = ThreeOf(Codec::kNone, INT64_MAX - 3);
  MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kBad);
  one = ThreeOf(Codec::kNone, 0);
  one.attributes = 5;
  MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kBadCompression);
  one.attributes = static_cast<std::int16_t>(Codec::kZstd);
  MILLRACE_CHECK(FaultOf(test::BatchOf(one)) == Kind::kBadCompression);
  for (const Codec codec : kCodecs) {
    if (codec == Codec::kNone) continue;
    MILLRACE_CHECK(FaultOf(test::BatchOf(ThreeOf(codec, 0)), 20) == Kind::kTooLarge);
  }
}

void AddressesTakeTurns() {
  direct::AddressTurns first(0);
  std::size_t index = 9;
  MILLRACE_CHECK(!first.Next(0, &index));
  MILLRACE_CHECK(first.Next(3, &index) && index == 0);
  // The first address was silent until the attempt ended.
  direct::AddressTurns second(first.next());
  for (const std::size_t expected : {1U, 2U, 0U}) {
    MILLRACE_CHECK(second.Next(3, &index) && index == expected);
  }
  MILLRACE_CHECK(!second.Next(3, &index));
  MILLRACE_CHECK(direct::AddressTurns(second.next()).Next(2, &index) && index == 0);
}

// Checks the client's answer to the first message of the server in RFC 7677, section 3.
void CheckProof(wire::SaslExchange* scram, const std::string& proof) {
  const std::string nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
  std::string reply;
  std::string error;
  bool is_done = false;
  MILLRACE_CHECK(
      scram->Answer("r=" + nonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", &reply, &is_done, &error));
  MILLRACE_CHECK(!is_done && reply == "c=biws,r=" + nonce + ",p=" + proof);
}

// The proof was computed by hashlib of Python; the client of TypeScript has the same vector.
void ScramHashesTheBytesOfAPassword() {
  const auto scram =
      wire::MakeSasl("SCRAM-SHA-256", "user", "pass\xc2\xb2\xef\xac\x81", "rOprNGfwEbeRWgbNEkqO");
  CheckProof(scram.get(), "wbTFcNvQk/ns4O2LGS4owm0Ux8cazBeRHHxsPvIZdlA=");
}

void ScramHasItsVectors() {
  // Source: RFC 7677, section 3.
  const auto scram = wire::MakeSasl("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
  MILLRACE_CHECK(scram->First() == "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
  CheckProof(scram.get(), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
  std::string reply;
  std::string error;
  bool is_done = false;
  MILLRACE_CHECK(
      scram->Answer("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", &reply, &is_done, &error));
  MILLRACE_CHECK(is_done);
  for (const char* message : {"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "r=nonce1,s=!,i=4096",
                              "r=nonce1,s=QUJD,i=10", "r=nonce1,s=QUJD,i=2000000000", ""}) {
    const auto other = wire::MakeSasl("SCRAM-SHA-512", "user", "pencil", "nonce");
    MILLRACE_CHECK(!other->Answer(message, &reply, &is_done, &error) && !error.empty());
  }
  const auto liar = wire::MakeSasl("SCRAM-SHA-512", "a,b=c", "pencil", "nonce");
  MILLRACE_CHECK(liar->First() == "n,,n=a=2Cb=3Dc,r=nonce");
  MILLRACE_CHECK(liar->Answer("r=nonce1,s=QUJD,i=4096", &reply, &is_done, &error));
  MILLRACE_CHECK(!liar->Answer("v=QUJD", &reply, &is_done, &error));
  const auto plain = wire::MakeSasl("PLAIN", "user", "pencil", "");
  MILLRACE_CHECK(plain->First() == std::string("\0user\0pencil", 12));
  MILLRACE_CHECK(wire::MakeSasl("GSSAPI", "", "", "") == nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  ChecksumsHaveTheirVectors();
  CodecsAreUndoneWithinTheLimit();
  RecordsHaveTheirFields();
  ABatchIsInflatedToTheRoomThatHoldsIt();
  ABatchThatDoesNotFitWaitsOrIsInflatedElsewhere();
  ReadingBeginsInsideABatchAndEndsBeforeACutOne();
  AbortedTransactionsAndMarkersAreSkipped();
  FaultsAreNamed();
  ScramHasItsVectors();
  ScramHashesTheBytesOfAPassword();
  AddressesTakeTurns();
  std::printf("checks=7\n");
  return 0;
}
