#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/target_info.h"

namespace replicant::kernels {

// The interface between a compiled plan and the device that computes it.
//
// A Backend drives one device. It makes memory (Buffer), queues (Stream) and
// marks in queues (Event), and turns graph nodes into Kernels. The caller
// (runtime::Executor) decides where every tensor lies before the first run:
//
//   CompileKernel(node, traits of its inputs)
//     -> scratch_size_bytes() -> Bind(addresses) -> (InputChanged(i)*, Launch)*
//
// A launch therefore allocates nothing and looks nothing up. Launches on one
// stream run in order; an Event orders launches of two streams. On the CPU
// backends a launch is complete when it returns. Callers must not rely on that,
// but on Stream::Synchronize().
//
// Destruction: kernels, streams, events and buffers before their backend.
//
// Thread-safety: a Backend's methods may be called from any thread, one at a
// time. A Stream and the kernels launched on it belong to one thread at a time.

// Memory of a device, aligned to at least Backend::kAlignment.
class Buffer {
 public:
  virtual ~Buffer() = default;

  // The address for kernels of this backend. The caller may access it only if
  // it is host memory (Backend::is_host_memory()).
  virtual std::byte* data() = 0;
  virtual size_t size_bytes() const = 0;
};

// A mark in a stream.
class Event {
 public:
  virtual ~Event() = default;

  // Blocks until everything launched before the last Stream::Record() of this
  // event is done. Returns at once if the event was never recorded. Throws
  // DeviceError if the device failed.
  virtual void Synchronize() = 0;
};

// A queue of work on a device, run in order.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual void Record(Event& event) = 0;
  // Makes later launches wait for the work that `event` marks.
  virtual void Wait(Event& event) = 0;
  // Blocks until the stream is empty. Throws DeviceError.
  virtual void Synchronize() = 0;

  // Copies `size_bytes`, in stream order; host memory must stay valid until
  // then. Ranges of one copy must not overlap.
  virtual void CopyToDevice(std::byte* device, const std::byte* host,
                            size_t size_bytes) = 0;
  virtual void CopyToHost(std::byte* host, const std::byte* device,
                          size_t size_bytes) = 0;
  virtual void CopyOnDevice(std::byte* to, const std::byte* from,
                            size_t size_bytes) = 0;
};

// Work recorded from a stream (Backend::Record()), which the device launches as
// one. It uses the memory that its launches were bound to.
//
// Destruction: before the kernels that were recorded.
class Recording {
 public:
  virtual ~Recording() = default;

  // Queues all of the work, in the order in which it was recorded. Throws
  // DeviceError.
  virtual void Launch(Stream& stream) = 0;
};

// The addresses of a kernel's operands. The tensors have the types of the
// node's inputs and outputs. Memory of different operands does not overlap,
// with two exceptions:
// - output i and input i are the same for i < node.updates.size(): the variable
//   that the node updates in place,
// - output o may be the same as input i after CanShare(i, o) has returned true.
struct KernelBindings {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  // scratch_size_bytes() bytes, shared with other kernels of the stream. Their
  // contents do not survive a launch.
  std::byte* scratch = nullptr;
};

// The plans of replicas that train one copy of the variables in one process.
// Kernels of these plans may compute something from a variable together, such
// as its weights in another layout. The backend that makes a group defines its
// contents; the caller only holds it.
//
// Thread-safety: kernels may be compiled with one group on several threads.
class ReplicaGroup {
 public:
  virtual ~ReplicaGroup() = default;
};

// The facts about one input of a kernel that hold from run to run. A backend
// may use them or ignore them.
struct InputTraits {
  // The value is a constant or a variable that the plan does not write. A
  // kernel may keep what it computes from the value until InputChanged().
  bool is_constant_between_runs = false;
  // Not null for a variable that the replicas of this group train together:
  // every plan of the group has this kernel, and none runs again before all
  // have updated the variable. Used while the kernel is compiled only.
  ReplicaGroup* group = nullptr;
  // Names the input within the group: the same in every plan.
  std::string name_in_group = {};
};

// One launch of a kernel, for plan reports.
struct LaunchDescription {
  enum class Kind { kLibrary, kOwnKernel, kGenerated, kCopy };
  // The unit that multiplies and adds: tensor cores with operands of TF32 or
  // bf16, or the arithmetic of f32.
  enum class Unit { kF32, kTF32, kBF16 };

  Kind kind = Kind::kLibrary;
  std::string name = "call of a library";
  double flops = 0.0;  // 2 for each multiplication with its addition
  Unit unit = Unit::kF32;
};

// The work of a kernel for one node.
struct KernelDescription {
  std::vector<LaunchDescription> launches;
  // Bytes of the node's inputs and outputs.
  size_t operand_bytes = 0;
  // Bytes of them that a later launch reads again.
  size_t reread_bytes = 0;
  // Bytes that its launches pass on through scratch, each written and read.
  size_t scratch_bytes = 0;
};

// One node, prepared for a device: primitives made, programs decoded.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Tells the kernel that an input that is_constant_between_runs has a new
  // value since the last launch.
  virtual void InputChanged(int /*input*/) {}

  virtual size_t scratch_size_bytes() const { return 0; }
  // Whether output `output` may lie in the memory of input `input`. The two
  // have equal sizes, and no later kernel reads the input.
  virtual bool CanShare(int /*input*/, int /*output*/) const { return false; }

  // Whether every Launch() queues the same work on its stream and does nothing
  // else, so that a recording of one launch stands for all later ones.
  virtual bool CanRecord() const { return false; }
  // Change by a Launch() in the number of streams whose work is not awaited: 1
  // for a kernel that starts work alongside the plan, -1 for the kernel that
  // waits for it. A recording holds both or neither.
  virtual int open_forks() const { return 0; }

  // For plan reports, once bound. Empty if the backend describes nothing.
  virtual KernelDescription Describe() const { return {}; }

  // Fixes the operands. Called before the first launch, and again only if they
  // move.
  virtual void Bind(const KernelBindings& bindings) = 0;
  // Runs, or queues, the kernel. Makes no allocation. Throws DeviceError.
  virtual void Launch(Stream& stream) = 0;
};

class DeviceCollectives;
class PlanCache;

class Backend {
 public:
  static constexpr size_t kAlignment = 64;

  virtual ~Backend() = default;

  // "reference", "cpu", "cuda".
  virtual std::string_view name() const = 0;
  // For messages: "cuda:3", "cpu, 2 threads".
  virtual std::string device() const = 0;
  // Whether the host may read and write Buffer::data(). If not, copies of a
  // Stream move values in and out.
  virtual bool is_host_memory() const = 0;
  // The device as the passes see it. Lives as long as the backend.
  virtual const graph::TargetInfo& target() const = 0;

  // Whether CompileKernel() can make `node`. If not, target().WhyUnsupported()
  // gives the reason. Asked for every node before anything runs.
  [[nodiscard]] bool SupportsOp(const graph::Graph& graph,
                                const graph::Node& node) const {
    return target().WhyUnsupported(graph, node).empty();
  }

  // Memory with undefined contents. Throws DeviceError if the device has too
  // little.
  virtual std::unique_ptr<Buffer> Allocate(size_t size_bytes) = 0;
  // Host memory from and to which a Stream copies asynchronously: the host does
  // not wait for the copies. Contents are undefined. Throws DeviceError.
  virtual std::unique_ptr<Buffer> AllocateHost(size_t size_bytes) {
    return Allocate(size_bytes);  // for is_host_memory()
  }
  virtual std::unique_ptr<Stream> CreateStream() = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;
  // `inputs` has one entry for each input of the node, or none where the caller
  // knows nothing. The kernel keeps no reference to graph, node or traits.
  // Throws DeviceError "<device> cannot run <op> '<name>' (<site>): <why>".
  virtual std::unique_ptr<Kernel> CompileKernel(
      const graph::Graph& graph, const graph::Node& node,
      std::span<const InputTraits> inputs = {}) = 0;
  // Called when the kernels of a plan have been compiled. May log a summary of
  // them.
  virtual void PlanCompiled() {}
  // Records what `issue` queues on `stream`, without running it. `issue`
  // neither allocates nor waits, and queues kernels that CanRecord(), with the
  // joins of their forks, and copies from and to memory of the device or of
  // AllocateHost(). Returns null, without calling `issue`, if the backend
  // records nothing. Throws what `issue` throws, and DeviceError; the stream
  // can be used again after either.
  virtual std::unique_ptr<Recording> Record(
      Stream& /*stream*/, const std::function<void()>& /*issue*/) {
    return nullptr;
  }
  // A group for plans of backends of this kind and device. Null if kernels of
  // several plans compute nothing together.
  virtual std::unique_ptr<ReplicaGroup> CreateReplicaGroup() { return nullptr; }
  // Calls between replicas that bypass the host
  // (engine/kernels/device_collectives.h). Null if host memory is enough.
  virtual DeviceCollectives* collectives() { return nullptr; }
};

struct BackendOptions {
  // Threads of one kernel, including the launching one; CPU only.
  int num_threads = 1;
  // Number of the device; GPU only.
  int device_index = 0;
  // Whether Backend::Record() records; GPU only.
  bool has_recordings = true;
  // If not null, the plans of libraries are timed, and the fastest are used and
  // kept here (engine/kernels/plan_cache.h); GPU only. Shared by the replicas
  // of a process.
  std::shared_ptr<PlanCache> tuned_plans = nullptr;
};

// Makes a backend by name: MakeBackend(), or a function of a program or test
// that adds backends.
using BackendFactory = std::function<std::unique_ptr<Backend>(
    std::string_view name, const BackendOptions& options)>;

// Makes a backend by name. Throws InvalidArgument, naming the known backends,
// and DeviceError if this build or this machine lacks what it needs.
std::unique_ptr<Backend> MakeBackend(std::string_view name,
                                     const BackendOptions& options = {});

// Names of the backends of this build that can run on this machine, "reference"
// first. The parity tests run over them.
std::vector<std::string> BuiltBackends();

}  // namespace replicant::kernels
