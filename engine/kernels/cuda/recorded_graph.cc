#include "engine/kernels/cuda/recorded_graph.h"

#include <utility>

namespace replicant::kernels::cuda {
namespace {

// A capture in progress. The destructor ends it and discards its graph, unless
// that is done.
class Capture {
 public:
  Capture(const Device& device, CUstream stream)
      : device_(device), stream_(stream) {
    device_.Check(device_.driver().StreamBeginCapture(stream_),
                  "cuStreamBeginCapture");
    is_open_ = true;
  }
  ~Capture() {
    Driver& driver = device_.driver_for_cleanup();
    if (is_open_) static_cast<void>(driver.StreamEndCapture(stream_, &graph_));
    if (graph_ != nullptr) driver.GraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // The graph, which belongs to the capture.
  CUgraph End() {
    Driver& driver = device_.driver();
    is_open_ = false;
    device_.Check(driver.StreamEndCapture(stream_, &graph_),
                  "cuStreamEndCapture");
    return graph_;
  }

 private:
  const Device& device_;
  const CUstream stream_;
  bool is_open_ = false;
  CUgraph graph_ = nullptr;
};

class RecordedGraph : public Recording {
 public:
  RecordedGraph(std::shared_ptr<const Device> device, CUgraph graph)
      : device_(std::move(device)) {
    device_->Check(device_->driver().GraphInstantiate(&executable_, graph),
                   "cuGraphInstantiate");
  }
  ~RecordedGraph() override {
    device_->driver_for_cleanup().GraphExecDestroy(executable_);
  }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  void Launch(Stream& stream) override {
    device_->Check(device_->driver().GraphLaunch(executable_, HandleOf(stream)),
                   "cuGraphLaunch");
  }

 private:
  const std::shared_ptr<const Device> device_;
  CUgraphExec executable_ = nullptr;
};

}  // namespace

std::unique_ptr<Recording> RecordOn(const std::shared_ptr<const Device>& device,
                                    Stream& stream,
                                    const std::function<void()>& issue) {
  Capture capture(*device, HandleOf(stream));
  issue();
  return std::make_unique<RecordedGraph>(device, capture.End());
}

}  // namespace replicant::kernels::cuda
