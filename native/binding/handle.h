// Handles: objects in JavaScript that own a native resource. A type tag distinguishes the kinds. A
// handle is closed explicitly, once; closing it again has no effect; using it afterwards throws
// `closed`. The garbage collector and the end of the environment (a worker that exits) close
// handles that were not closed.
#pragma once

#include <node_api.h>

#include <memory>
#include <unordered_set>
#include <utility>

#include "binding/args.h"

namespace millrace::binding {

// Resource that a handle owns. Work that outlives a call keeps a shared_ptr of its own.
class Resource {
 public:
  virtual ~Resource() = default;
  // Runs once, on the environment's thread; must not call into JavaScript. Work in flight ends soon
  // afterwards.
  virtual void Close() = 0;
};

struct HandleType {
  napi_type_tag tag;  // random, different for each type
  const char* name;
};

// Makes a handle object. Null after a throw.
napi_value NewHandle(napi_env env, const HandleType& type, std::shared_ptr<Resource> resource);

// Resource of an open handle; null after a throw (TypeError for another object, `closed` after
// close).
std::shared_ptr<Resource> OpenResource(const Call& call, std::size_t index, const char* name,
                                       const HandleType& type);

template <typename T>
std::shared_ptr<T> Open(const Call& call, std::size_t index, const char* name,
                        const HandleType& type) {
  return std::static_pointer_cast<T>(OpenResource(call, index, name, type));
}

// Closes a handle; has no effect on a closed handle. False after a throw (not such a handle).
bool CloseHandle(const Call& call, std::size_t index, const char* name, const HandleType& type);

// State of one environment. Created by the addon's entry, destroyed with the environment.
class Environment {
 public:
  // False after a throw.
  static bool Create(napi_env env);
  // Number of open handles in this environment; for leak tests.
  static std::size_t OpenHandles(napi_env env);

 private:
  struct Box;
  friend napi_value NewHandle(napi_env, const HandleType&, std::shared_ptr<Resource>);
  friend std::shared_ptr<Resource> OpenResource(const Call&, std::size_t, const char*,
                                                const HandleType&);
  friend bool CloseHandle(const Call&, std::size_t, const char*, const HandleType&);

  static Environment* Of(napi_env env);
  static Box* BoxOf(const Call& call, std::size_t index, const char* name, const HandleType& type);
  static void FinalizeBox(napi_env env, void* data, void* hint);
  static void CloseAll(void* data);

  std::unordered_set<Box*> open_;
};

}  // namespace millrace::binding
