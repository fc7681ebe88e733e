// Places, events and lists of the broker client, from and to JavaScript.
#pragma once

#include <node_api.h>

#include <string>
#include <vector>

#include "binding/args.h"
#include "broker/client.h"

namespace millrace::binding {

inline constexpr std::size_t kTopicsMax = 100'000;
inline constexpr std::size_t kTextBytesMax = 1 << 20;

// An array of strings.
bool Texts(const Call& call, std::size_t index, const char* name, std::vector<std::string>* out);
// Names and values in turn.
bool PropertiesOf(const Call& call, std::size_t index, broker::Properties* out);
// Three arguments from `index` on: topics, Int32Array of partitions, BigInt64Array of offsets, of
// one length.
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

// [event, payload]: what every control call resolves to.
napi_value ToAnswer(napi_env env, const broker::Event& event, napi_value payload = nullptr);

}  // namespace millrace::binding
