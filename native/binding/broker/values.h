// Conversions of the broker client: topic partitions, events and lists, from and to JavaScript.
#pragma once

#include <node_api.h>

#include <string>
#include <vector>

#include "binding/args.h"
#include "broker/client.h"
#include "broker/consumer.h"

namespace millrace::binding {

inline constexpr std::size_t kTopicsMax = 100'000;
inline constexpr std::size_t kTextBytesMax = 1 << 20;

// Reads an array of strings.
bool Texts(const Call& call, std::size_t index, const char* name, std::vector<std::string>* out);
// Reads an array that alternates names and values.
bool PropertiesOf(const Call& call, std::size_t index, broker::Properties* out);
// Reads three arguments from `index` on, of equal length: topics, Int32Array of partitions,
// BigInt64Array of offsets.
bool PlacesOf(Call& call, std::size_t index, std::vector<broker::Place>* out);

// [code, message, fatal, topic | null, partition]
napi_value ToValue(napi_env env, const broker::Event& event);
// [topic, partition, offset]
napi_value ToValue(napi_env env, const broker::Place& place);
napi_value ToValue(napi_env env, const std::string& text);

template <typename T>
napi_value ToList(napi_env env, const std::vector<T>& values) {
  napi_value list = nullptr;
  napi_create_array_with_length(env, values.size(), &list);
  for (std::uint32_t i = 0; i < values.size(); i++) {
    napi_set_element(env, list, i, ToValue(env, values[i]));
  }
  return list;
}

// [rows, ends, events, topics, duration in ms, receipts: rows, age in ms, rows, …]. `ended_us`: end of
// the call, from NowUs.
napi_value ToConsumed(napi_env env, const broker::ConsumeOutcome& outcome, double took_ms,
                      std::int64_t ended_us);

// [event, payload]: the result of every control call.
napi_value ToAnswer(napi_env env, const broker::Event& event, napi_value payload = nullptr);

}  // namespace millrace::binding
