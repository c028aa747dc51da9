#include "base/metrics/exposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "tests/support/http_get.h"

namespace replicant::metrics {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using testing::HttpGet;
using ::testing::StartsWith;

std::string MessageOf(const std::string& address) {
  const Registry registry;
  try {
    const Exposer exposer({address}, registry);
  } catch (const Error& e) {
    return e.what();
  }
  return "no Error";
}

TEST(ExposerTest, ServesWhatTheRegistryHolds) {
  Registry registry;
  Gauge& items = registry.AddGauge("replicant_replay_items", "Items.");
  const Exposer exposer({}, registry);
  items.Set(7);
  const std::string answer = HttpGet(exposer.port(), "/metrics");
  EXPECT_EQ(answer.rfind("HTTP/1.1 200 OK", 0), 0U) << answer;
  EXPECT_NE(answer.find("\nreplicant_replay_items 7\n"), std::string::npos)
      << answer;
  EXPECT_EQ(exposer.Url(),
            "http://127.0.0.1:" + std::to_string(exposer.port()) + "/metrics");
}

// Would catch a server that hands out files of the working folder.
TEST(ExposerTest, ServesNothingElse) {
  const Registry registry;
  const Exposer exposer({}, registry);
  for (const char* path : {"/", "/CMakeCache.txt", "/../../etc/hostname"}) {
    EXPECT_EQ(HttpGet(exposer.port(), path).rfind("HTTP/1.1 404", 0), 0U)
        << path;
  }
}

// Would catch a server thread that reads a registry which is gone.
TEST(ExposerTest, ARegistryThatIsGoneIsServedAsEmpty) {
  auto registry = std::make_unique<Registry>();
  registry->AddGauge("replicant_replay_items", "Items.");
  const Exposer exposer({}, *registry);
  registry.reset();
  EXPECT_EQ(HttpGet(exposer.port(), "/metrics").find("replicant_replay_items"),
            std::string::npos);
}

TEST(ExposerTest, APortInUseIsNamed) {
  const Registry registry;
  const Exposer first({}, registry);
  const std::string address = "127.0.0.1:" + std::to_string(first.port());
  // what the library says differs by version
  EXPECT_THAT(MessageOf(address),
              AllOf(StartsWith(HostAndPid() + ": metrics address '" + address +
                               "': cannot listen (null context when "
                               "constructing CivetServer. Possible problem "
                               "binding to port."),
                    EndsWith("); hint: another process may use the port, or "
                             "the address does not belong to this machine")));
}

// The server's own stop takes up to two seconds, which every process of a
// fleet would spend at its end.
TEST(ExposerTest, StopsAtOnce) {
  const Registry registry;
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    auto exposer = std::make_unique<Exposer>(ExposerOptions{address}, registry);
    const Clock::TimePoint start = Clock::Real().Now();
    exposer.reset();
    EXPECT_LT(Clock::Real().Now() - start, std::chrono::seconds(1)) << address;
  }
}

// Each would reach the HTTP server's own, wider syntax: a list of ports, TLS,
// or every interface where loopback was meant.
TEST(ExposerTest, AddressesOfAnotherFormAreRefused) {
  for (const char* address :
       {"", "9464", ":9464", "localhost:9464", "127.0.0.1",
        "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80s",
        "127.0.0.1:80,81", "+8080:80", "::1:80", "[::1]:80", "1.2.3:80"}) {
    EXPECT_EQ(MessageOf(address), "metrics address '" + std::string(address) +
                                      "': expected an IPv4 address and a port, "
                                      "such as 127.0.0.1:9464 (port 0: any)");
  }
}

}  // namespace
}  // namespace replicant::metrics
