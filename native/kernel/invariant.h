// Checks of invariants that would cost too much in production. They are compiled where
// MILLRACE_INVARIANTS is defined, as in the sanitizer builds of tools/native-test.mjs, and nowhere
// else.
#pragma once

#ifdef MILLRACE_INVARIANTS

#include <cstdio>
#include <cstdlib>

namespace millrace::kernel {

[[noreturn]] inline void InvariantBroken(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

}  // namespace millrace::kernel

#define MILLRACE_INVARIANT(condition) \
  ((condition) ? void() : ::millrace::kernel::InvariantBroken(#condition, __FILE__, __LINE__))

#else

// The condition is compiled, so that it cannot rot, and never evaluated.
#define MILLRACE_INVARIANT(condition) static_cast<void>(sizeof(!(condition)))

#endif
