// Runs a libFuzzer entry point without libFuzzer: every file of the corpus, then a given number of
// mutations of them. The same seed gives the same mutations.
//   NAME_fuzz CORPUS_DIR [RUNS [SEED]]
// The last line of stdout is `inputs=N mutations=N`. A failing mutation is kept in the file
// `crash-NAME` of the working folder, to become a corpus file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "test/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

using millrace::test::Random;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kInputBytesMax = 1 << 14;
Bytes g_current;
std::string g_crash_path;

void KeepCurrent() {
  std::FILE* file = std::fopen(g_crash_path.c_str(), "wb");
  if (file == nullptr) return;
  std::fwrite(g_current.data(), 1, g_current.size(), file);
  std::fclose(file);
}

Bytes ReadFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);
  }
  Bytes bytes(kInputBytesMax);
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
  std::fclose(file);
  return bytes;
}

void Mutate(Bytes* bytes, const std::vector<Bytes>& corpus, Random* random) {
  static constexpr std::uint8_t kWords[][4] = {{0, 0, 0, 0},
                                               {0xff, 0xff, 0xff, 0xff},
                                               {0xff, 0xff, 0xff, 0x7f},
                                               {0, 0, 0, 0x80},
                                               {0, 1, 0, 0},
                                               {5, 0, 0, 0}};
  for (std::size_t changes = 1 + random->Below(6); changes > 0; changes--) {
    if (bytes->empty()) bytes->push_back(0);
    const std::size_t at = random->Below(bytes->size());
    switch (random->Below(6)) {
      case 0:
        (*bytes)[at] = static_cast<std::uint8_t>(random->Next());
        break;
      case 1:
        (*bytes)[at] = static_cast<std::uint8_t>((*bytes)[at] ^ (1U << random->Below(8)));
        break;
      case 2: {
        const auto& word = kWords[random->Below(std::size(kWords))];
        std::copy_n(word, std::min(sizeof word, bytes->size() - at), bytes->data() + at);
        break;
      }
      case 3:
        bytes->resize(at);
        break;
      case 4:
        bytes->insert(bytes->begin() + static_cast<std::ptrdiff_t>(at),
                      static_cast<std::uint8_t>(random->Next()));
        break;
      default: {
        const Bytes& other = corpus[random->Below(corpus.size())];
        if (other.empty()) break;
        const std::size_t from = random->Below(other.size());
        const std::size_t length = std::min(other.size() - from, bytes->size() - at);
        std::copy_n(other.data() + from, length, bytes->data() + at);
      }
    }
  }
  if (bytes->size() > kInputBytesMax) bytes->resize(kInputBytesMax);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIR [RUNS [SEED]]\n", argv[0]);
    return 2;
  }
  const std::uint64_t runs = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  g_crash_path = "crash-" + std::filesystem::path(argv[0]).filename().string();
  __sanitizer_set_death_callback(KeepCurrent);
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const std::string& path : paths) {
    corpus.push_back(ReadFile(path));
    g_current = corpus.back();
    LLVMFuzzerTestOneInput(g_current.data(), g_current.size());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no input\n", argv[1]);
    return 2;
  }
  Random random(seed);
  for (std::uint64_t run = 0; run < runs; run++) {
    g_current = corpus[random.Below(corpus.size())];
    Mutate(&g_current, corpus, &random);
    LLVMFuzzerTestOneInput(g_current.data(), g_current.size());
  }
  std::printf("inputs=%zu mutations=%llu\n", corpus.size(), static_cast<unsigned long long>(runs));
  return 0;
}
