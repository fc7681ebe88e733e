// Low-overhead load generator: one thread, epoll, open model.
//
//   c++ -std=c++20 -O2 bench/peers/http-load/http_load.cc -o /tmp/http-load
//   /tmp/http-load -target=127.0.0.1:8080 -rate=5000 -duration=10 [-NAME=VALUE …]
//
//   -target       host:port                                             127.0.0.1:8080
//   -protocol     http: POST over HTTP/1.1; grpc: orders.v1.Orders/Create http
//   -path         path of the POST                                      /orders
//   -rate         requests per second, including repeats; 0: closed model,
//                 every connection sends after its answer               1000
//   -duration     seconds                                               10
//   -warmup       seconds at the start that are not measured            0
//   -connections  connections; gRPC has up to 90 calls in flight on each 128, gRPC 4
//   -seed         the same seed gives the same keys, bodies, times      1
//   -pattern      fresh: every intent its own key, a share is repeated;
//                 zipf: keys drawn from -keys by rank; single: one key  fresh
//   -repeat       share of intents followed by 1 to 3 repeats of a key  0.15
//   -within       seconds in which repeats follow                       2
//   -keys         size of the hot set (zipf: of all keys)               20000
//   -zipf         exponent                                              1.1
//   -accounts     distinct accounts                                     1000000
//   -timeout      timeout of a request in seconds                       10
//   -give-up      seconds after the last due time                       30
//   -fault-every  seconds between faults that the caller makes, the
//                 first so long after the warm-up                       never
//   -fault-for    seconds after each fault that calm_ms leaves out      15
//   -ledger       file for `millrace reconcile -ledger`; must not exist
//
// Latency counts from the due time of a request, so a slow server or a lack of free connections is
// included (no coordinated omission). 429, 408, 425, 5xx and lost connections are retried with the
// same key. All 2xx answers to a key must be equal in status and body. Prints one line of JSON:
//
//   latency_ms from the due time; service_ms from the write; wait_ms from the due time to the
//   write (all with p50 p90 p99 p999 max); backlog: unanswered at the end of every second;
//   slowest_ms: slowest of the sends due in every second; cpu_us: CPU of this program per reply;
//   calm_ms: latency_ms of the sends that are due outside the time after a fault.
//
// Exit code 1 if answers to a key differ, or an intent has no 2xx answer.
#include <sys/timerfd.h>

#include <csignal>

#include "grpc.h"
#include "http1.h"

namespace {

using load::Run;

constexpr std::uint64_t kTimer = ~0ULL;
constexpr std::int64_t kCheckNs = 50'000'000;

volatile std::sig_atomic_t stopped = 0;

struct Options {
  load::RunOptions run;
  std::string path = "/orders";
  std::string ledger;
  std::size_t connections = 0;
  bool grpc = false;
  double timeout_s = 10;
};

[[noreturn]] void Usage(const std::string& why) {
  std::fprintf(stderr, "http-load: %s; the head of http_load.cc lists the flags\n", why.c_str());
  std::exit(2);
}

double Number(const std::string& name, const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    Usage("-" + name + "=" + text + " is not a number in its range");
  }
  return value;
}

Options Parse(int argc, char** argv) {
  Options options;
  options.run.target = "127.0.0.1:8080";
  load::PlanOptions& plan = options.run.plan;
  for (int i = 1; i < argc; i++) {
    std::string flag = argv[i];
    const std::size_t equals = flag.find('=');
    if (flag[0] != '-' || equals == std::string::npos) Usage(flag + " is not -NAME=VALUE");
    const std::string name = flag.substr(flag[1] == '-' ? 2 : 1, equals - (flag[1] == '-' ? 2 : 1));
    const std::string value = flag.substr(equals + 1);
    const auto number = [&](double least, double most) { return Number(name, value, least, most); };
    if (name == "target")
      options.run.target = value;
    else if (name == "path")
      options.path = value;
    else if (name == "ledger")
      options.ledger = value;
    else if (name == "rate")
      plan.rate = number(0, 1e7);
    else if (name == "duration")
      plan.duration_s = number(0, 1e6);
    else if (name == "warmup")
      options.run.warmup_s = number(0, 1e6);
    else if (name == "connections")
      options.connections = static_cast<std::size_t>(number(1, 60'000));
    else if (name == "seed")
      plan.seed = static_cast<std::uint64_t>(number(0, 1e15));
    else if (name == "repeat")
      plan.repeat_share = number(0, 1);
    else if (name == "within")
      plan.repeat_within_s = number(0, 3600);
    else if (name == "keys")
      plan.keys = static_cast<std::uint32_t>(number(1, 1e8));
    else if (name == "zipf")
      plan.zipf = number(0, 10);
    else if (name == "accounts")
      options.run.accounts = static_cast<std::uint32_t>(number(1, 4e9));
    else if (name == "timeout")
      options.timeout_s = number(0.001, 3600);
    else if (name == "give-up")
      options.run.give_up_s = number(0, 3600);
    else if (name == "fault-every")
      options.run.fault_every_s = number(0.001, 1e6);
    else if (name == "fault-for")
      options.run.fault_for_s = number(0, 1e6);
    else if (name == "protocol") {
      if (value != "http" && value != "grpc") Usage("-protocol is http or grpc");
      options.grpc = value == "grpc";
    } else if (name == "pattern") {
      if (value == "fresh")
        plan.pattern = load::Pattern::kFresh;
      else if (value == "zipf")
        plan.pattern = load::Pattern::kZipf;
      else if (value == "single")
        plan.pattern = load::Pattern::kSingle;
      else
        Usage("-pattern is fresh, zipf or single");
    } else {
      Usage("unknown flag -" + name);
    }
  }
  return options;
}

// A single timer for the next due time avoids polling.
void Arm(int timer, std::int64_t in_ns) {
  itimerspec spec{};
  if (in_ns < 1) in_ns = 1;
  spec.it_value.tv_sec = in_ns / load::kSecond;
  spec.it_value.tv_nsec = in_ns % load::kSecond;
  timerfd_settime(timer, 0, &spec, nullptr);
}

void Drive(Run& run, load::Transport& transport, int epoll) {
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimer;
  epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
  std::int64_t next_check = 0;
  for (;;) {
    if (stopped != 0) run.plan().Stop();
    const std::int64_t now = run.Now();
    run.Release(now);
    if (now >= next_check) {
      transport.Check(run);
      next_check = now + kCheckNs;
    }
    transport.Pump(run);
    if (run.Over(run.Now(), transport.in_flight())) break;
    Arm(timer, std::min(run.plan().NextDue(), next_check) - run.Now());
    epoll_event events[256];
    const int count = epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < count; i++) {
      if (events[i].data.u64 == kTimer) {
        std::uint64_t fired;
        if (read(timer, &fired, sizeof fired) < 0) continue;
      } else {
        transport.OnEvent(run, events[i].data.u64, events[i].events);
      }
    }
  }
  close(timer);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const std::size_t colon = options.run.target.rfind(':');
  if (colon == std::string::npos) Usage("-target is host:port");
  std::signal(SIGTERM, [](int) { stopped = 1; });
  std::signal(SIGINT, [](int) { stopped = 1; });
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  const std::string host = options.run.target.substr(0, colon);
  const std::string port = options.run.target.substr(colon + 1);
  const std::size_t connections = options.connections;
  std::unique_ptr<load::Transport> transport;
  if (options.grpc) {
    transport = std::make_unique<load::Grpc>(epoll, host, port, connections == 0 ? 4 : connections,
                                             options.timeout_s);
  } else {
    transport = std::make_unique<load::Http1>(
        epoll, host, port, options.path, connections == 0 ? 128 : connections, options.timeout_s);
  }
  if (!transport->connected()) {
    std::fprintf(stderr, "http-load: no connection to %s\n", options.run.target.c_str());
    return 3;
  }
  Run run(options.run);
  if (!options.ledger.empty() && !run.ledger().Open(options.ledger.c_str())) {
    std::fprintf(stderr, "http-load: cannot write %s: %s\n", options.ledger.c_str(),
                 std::strerror(errno));
    return 2;
  }
  run.Start();
  Drive(run, *transport, epoll);
  if (!run.Print()) {
    std::fprintf(stderr, "http-load: the ledger is incomplete: %s\n", std::strerror(errno));
    return 2;
  }
  return run.sound() ? 0 : 1;
}
