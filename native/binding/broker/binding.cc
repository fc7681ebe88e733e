// Exported functions of the broker client.
#include "binding/args.h"
#include "binding/broker/values.h"
#include "binding/register.h"
#include "broker/client.h"

namespace millrace::binding {

void RegisterConsumer(napi_env env, napi_value exports);
void RegisterProducer(napi_env env, napi_value exports);
void RegisterDirect(napi_env env, napi_value exports);

namespace {

// () -> [version, features, [[code, name, text], …]] of the loaded librdkafka
napi_value BrokerLibrary(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(0)) return nullptr;
  const std::vector<broker::ErrorRow> rows = broker::ErrorTable();
  napi_value list = nullptr;
  napi_value table = nullptr;
  napi_create_array_with_length(env, 3, &list);
  napi_create_array_with_length(env, rows.size(), &table);
  for (std::uint32_t i = 0; i < rows.size(); i++) {
    napi_value row = nullptr;
    napi_create_array_with_length(env, 3, &row);
    napi_set_element(env, row, 0, ToNumber(env, rows[i].code));
    napi_set_element(env, row, 1, ToText(env, rows[i].name));
    napi_set_element(env, row, 2, ToText(env, rows[i].text));
    napi_set_element(env, table, i, row);
  }
  napi_set_element(env, list, 0, ToValue(env, broker::LibraryVersion()));
  napi_set_element(env, list, 1, ToValue(env, broker::LibraryFeatures()));
  napi_set_element(env, list, 2, table);
  return list;
}

}  // namespace

void RegisterBroker(napi_env env, napi_value exports) {
  Export(env, exports, "brokerLibrary", BrokerLibrary);
  RegisterConsumer(env, exports);
  RegisterProducer(env, exports);
  RegisterDirect(env, exports);
}

}  // namespace millrace::binding
