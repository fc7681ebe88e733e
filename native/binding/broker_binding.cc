// The broker client's functions of the addon.
#include "binding/register.h"

namespace millrace::binding {

void RegisterBroker(napi_env, napi_value) {}

}  // namespace millrace::binding
