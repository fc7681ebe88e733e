// Optimistic reader of Protobuf payloads: appends each value to its column when it is read.
//
// The format lets a later field replace or extend an earlier one, so a general reader must hold the
// values of a message until its end. But nearly all writers write each field once, in the order of
// the numbers. A payload of such a writer is read in one pass over the bytes and one over the
// fields, without anything held. Every other payload, a malformed one too, is left to the general
// reader, which decides what it means: this reader has no verdicts.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/codec/columns.h"
#include "kernel/codec/protobuf.h"

namespace millrace::kernel::codec {

class OrderedReader {
 public:
  // Borrows both. They stay where they are.
  OrderedReader(const ProtoProgram& program, Columns* into);

  // `last_short` as of LastShortText(). Until the next call.
  void Open(Bytes last_short) { last_short_ = last_short; }

  // Appends the values of a payload to the top columns. False where the general reader must read
  // it: then the caller rolls back.
  bool Read(Bytes payload, std::int32_t length);

 private:
  struct Node;

  // No tag: ends the lanes of a message, and marks a field that no tag belongs to. It is greater
  // than the number of every tag.
  static constexpr std::uint32_t kNoTag = 0xffffffffU;
  static constexpr std::uint32_t kNoNumber = 0xffffffffU;

  // Way to read the bytes behind a tag.
  enum Step : std::uint8_t {
    kText,
    kBinary,
    kInt32,
    kInt64,
    kSint32,
    kSint64,
    kBool,
    kFixed32,
    kFixed64,
    kClosedEnum,
    // Message as bytes.
    kRaw,
    kEntry,
    kCheckText,
    kCheckBinary,
    kCheckVarint,
    kCheckFixed32,
    kCheckFixed64,
    // Left to the general reader.
    kOther,
    // No value: a message, whose fields follow.
    kMessage,
    // Member of a oneof, list of numbers, or one value of a closed enum: its item says the rest.
    kSpecial,
  };

  // Way to end a field behind its last value; a single one, where it is absent.
  enum End : std::uint8_t { kNothing, kEmpty, kZero, kClose, kRequired };

  // Field of a message: what the tags and the reader of the field need.
  struct Lane {
    // Tag that most writers use; a list of numbers, which may be packed or not, has another.
    std::uint32_t tag = kNoTag;
    std::uint32_t other_tag = kNoTag;
    std::uint32_t run_tag = kNoTag;
    std::uint32_t number = kNoNumber - 1;
    Step step = kOther;
    End end = kNothing;
    // Step of an element of a list of numbers, and of the key of a map and its value.
    Step item = kOther;
    Step key = kOther;
    // Counted fields of the members of the oneof.
    std::int32_t members = 0;
    // Lane of the next field; this one where further values may follow.
    const Lane* next = nullptr;
    // Columns of the values and of the whole field; nullptr for a field that is only checked.
    Cursor* value = nullptr;
    Cursor* whole = nullptr;
    const Node* child = nullptr;
    const ProtoField* field = nullptr;
    // Bit of the oneof; 0 for none.
    std::uint64_t oneof = 0;
  };

  // Position behind a value, and the lane of the next one. Two registers.
  struct Point {
    Bytes at;
    const Lane* lane;
  };

  struct Node {
    // Ascending by number; the last one has no tag.
    std::vector<Lane> lanes;
    const ProtoNode* from = nullptr;
    // Column of the struct; nullptr for a message that is only checked, and for the payload's.
    Cursor* column = nullptr;
  };

  // Message around one that is read: where it continues.
  struct Frame {
    const Node* node;
    const Lane* lane;
    Bytes limit;
    std::uint64_t oneofs;
  };

  bool MakeNode(const ProtoNode& from, Node* node);
  bool IsClosed(const ProtoNode& from, std::int32_t oneof) const;
  void MakeLane(const ProtoField& field, Lane* lane);
  static bool AddTag(const ProtoTag& tag, Lane* lane);
  static Step StepOf(std::int32_t kind, bool has_column);

  bool Spend(std::int32_t fields) {
    fields_left_ -= fields;
    return fields_left_ >= 0;
  }
  // True for a tag of a field that the lanes have passed.
  static bool IsLate(const Node& node, std::uint32_t tag);

  // Read a part of the payload and return the position behind it. nullptr: the general reader must
  // read the payload. Reads stay inside the payload; that a part stays inside the part around it is
  // checked where the latter ends.
  Bytes ReadMessage(const Node& node, Bytes at, Bytes limit, int depth);
  Bytes ReadValue(Step step, const Lane& lane, Cursor* into, Bytes at, int depth);
  Bytes ReadItem(Step step, const Lane& lane, Cursor* into, Bytes at, int depth);
  Bytes ReadOther(Step step, const Lane& lane, Cursor* into, Bytes at, int depth);
  Point ReadSpecial(const Lane& lane, std::uint32_t tag, Bytes at, int depth,
                    std::uint64_t* oneofs);
  Bytes ReadRun(const Lane& lane, Bytes at);
  Bytes ReadEnum(const Lane& lane, Bytes at, bool* is_known);
  Bytes ReadEntry(const Lane& lane, Bytes at, int depth);
  // Reads the length of a message and counts its fields. `limit` is the end of the message.
  Bytes ReadHead(const Lane& lane, Bytes at, int depth, Bytes* limit);
  Bytes ReadNested(const Lane& lane, Bytes at, int depth);
  Bytes ReadLongText(Cursor* into, Bytes at);
  template <typename T>
  Bytes ReadFixed(Cursor* into, Bytes at);
  static Bytes ReadLength(Bytes at, Bytes end, std::uint32_t* length);
  Bytes Skip(std::uint32_t tag, Bytes at);
  bool EndField(const Lane& lane);
  // Ends the fields from `lane` on, and the message.
  bool EndMessage(const Node& node, const Lane* lane);

  const ProtoProgram& program_;
  Columns& into_;
  // One for each of the program's; none where a payload of the program may mean something else.
  std::vector<Node> nodes_;
  // Messages around the current one, by their depth.
  Frame frames_[layout::kProtoLimitDepth];
  // End of the payload.
  Bytes end_ = nullptr;
  Bytes last_short_ = nullptr;
  std::int64_t fields_left_ = 0;
};

}  // namespace millrace::kernel::codec
