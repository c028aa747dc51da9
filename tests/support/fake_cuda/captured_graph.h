#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/kernels/cuda/driver.h"
#include "tests/support/fake_cuda/memory_order.h"

// What FakeDriver keeps of a captured stream.
namespace replicant::testing {

// Work of a stream: a launch, a copy or a call of a library.
struct StreamWork {
  std::string name;
  std::vector<kernels::cuda::MemoryRange> reads;
  std::vector<kernels::cuda::MemoryRange> writes;
  // Refers to nothing that its issuer may change or destroy.
  std::function<void()> run;
  // The module whose function it launches; 0 for none.
  uintptr_t module = 0;
  bool is_copy = false;
  double time_us = 0.0;
};

// A place in a stream's work: of a stream of the driver, or, with a clock, of
// one of the streams of a graph that is being launched.
struct StreamPlace {
  uintptr_t number = 0;
  Clock* clock = nullptr;

  bool is_in_graph() const { return clock != nullptr; }
};

// A rank's part in a call of several ranks: called when its stream comes to the
// call, without a lock. In a graph it returns when the call is over.
using MeetFunction = std::function<CUresult(const StreamPlace&)>;

// An operation of one of the streams of a capture.
struct GraphOperation {
  enum class Kind { kWork, kMeet, kRecord, kWait };

  Kind kind;
  uintptr_t stream;
  uintptr_t event = 0;     // kRecord, kWait
  StreamWork work = {};    // kWork
  MeetFunction meet = {};  // kMeet
};

struct CapturedGraph {
  uintptr_t origin = 0;  // the stream that was captured
  std::vector<GraphOperation> operations;
};

// A capture in progress.
struct Capture {
  std::thread::id thread;
  CapturedGraph graph;
  // the origin, and what waited for an event of the capture
  std::set<uintptr_t> streams;
  std::set<uintptr_t> events;
  bool is_invalid = false;
};

struct ExecutableGraph {
  CapturedGraph graph;
  // Streams of the graph other than the origin are private to it.
  std::map<uintptr_t, uintptr_t> numbers;
  std::map<uintptr_t, Clock> clocks;
};

// Goes through the operations of a graph in order. `origin` is the clock of the
// captured stream, `others` has the clocks of its other streams; records and
// waits of events move them, and `run` runs a kWork or kMeet as the next of the
// stream whose clock it is given. Ends with the first result that is not a
// success.
CUresult WalkGraph(
    const CapturedGraph& graph, Clock* origin,
    std::map<uintptr_t, Clock>* others,
    const std::function<CUresult(const GraphOperation&, Clock*)>& run);

// Whether everything in the graph comes before the last operation of its
// origin.
bool IsJoined(const CapturedGraph& graph);

}  // namespace replicant::testing
