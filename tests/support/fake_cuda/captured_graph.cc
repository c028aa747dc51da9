#include "tests/support/fake_cuda/captured_graph.h"

namespace replicant::testing {

bool IsJoined(const CapturedGraph& graph) {
  std::map<uintptr_t, Clock> streams;
  std::map<uintptr_t, Clock> events;
  std::map<uintptr_t, uint64_t> last;
  for (const GraphOperation& operation : graph.operations) {
    Clock& clock = streams[operation.stream];
    switch (operation.kind) {
      case GraphOperation::Kind::kWork:
        last[operation.stream] = clock.Advance(operation.stream);
        break;
      case GraphOperation::Kind::kRecord:
        events[operation.event] = clock;
        break;
      case GraphOperation::Kind::kWait:
        clock.Join(events[operation.event]);
        break;
    }
  }
  for (const auto& [stream, tick] : last) {
    if (!streams[graph.origin].Has(stream, tick)) return false;
  }
  return true;
}

}  // namespace replicant::testing
