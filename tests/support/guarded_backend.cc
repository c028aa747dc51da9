#include "tests/support/guarded_backend.h"

#include <sys/mman.h>

#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"

namespace replicant::testing {
namespace {

using kernels::Backend;
using kernels::Buffer;
using kernels::Event;
using kernels::InputTraits;
using kernels::Kernel;
using kernels::KernelBindings;
using kernels::Stream;

// The pages of a backend's buffers. They are accessible while an Access lives.
//
// Thread-safety: any thread.
class GuardedPages {
 public:
  class Access {
   public:
    explicit Access(GuardedPages* pages) : pages_(*pages) { pages_.Open(); }
    ~Access() { pages_.Close(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedPages& pages_;
  };

  std::byte* Add(size_t size_bytes) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    void* pages = mmap(nullptr, size_bytes, ProtectionNow(),
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REPLICANT_CHECK(pages != MAP_FAILED, "mmap of {} bytes", size_bytes);
    sizes_[pages] = size_bytes;
    return static_cast<std::byte*>(pages);
  }
  void Remove(std::byte* pages) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    munmap(pages, sizes_.at(pages));
    sizes_.erase(pages);
  }

 private:
  int ProtectionNow() const REQUIRES(mutex_) {
    return num_open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  }
  void Protect() REQUIRES(mutex_) {
    for (const auto& [pages, size] : sizes_) {
      REPLICANT_CHECK_EQ(mprotect(pages, size, ProtectionNow()), 0);
    }
  }
  void Open() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (++num_open_ == 1) Protect();
  }
  void Close() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (--num_open_ == 0) Protect();
  }

  Mutex mutex_;
  int num_open_ GUARDED_BY(mutex_) = 0;
  std::map<void*, size_t> sizes_ GUARDED_BY(mutex_);
};

class GuardedBuffer : public Buffer {
 public:
  GuardedBuffer(std::shared_ptr<GuardedPages> pages, size_t size_bytes)
      : pages_(std::move(pages)),
        size_bytes_(size_bytes),
        // an empty mapping is an error
        data_(pages_->Add(size_bytes + 1)) {}
  ~GuardedBuffer() override { pages_->Remove(data_); }

  std::byte* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const std::shared_ptr<GuardedPages> pages_;
  const size_t size_bytes_;
  std::byte* const data_;
};

class GuardedStream : public Stream {
 public:
  GuardedStream(std::shared_ptr<GuardedPages> pages,
                std::unique_ptr<Stream> stream)
      : pages_(std::move(pages)), stream_(std::move(stream)) {}

  void Record(Event& event) override { stream_->Record(event); }
  void Wait(Event& event) override { stream_->Wait(event); }
  void Synchronize() override { stream_->Synchronize(); }
  void CopyToDevice(std::byte* device, const std::byte* host,
                    size_t size_bytes) override {
    const GuardedPages::Access access(pages_.get());
    stream_->CopyToDevice(device, host, size_bytes);
  }
  void CopyToHost(std::byte* host, const std::byte* device,
                  size_t size_bytes) override {
    const GuardedPages::Access access(pages_.get());
    stream_->CopyToHost(host, device, size_bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from,
                    size_t size_bytes) override {
    const GuardedPages::Access access(pages_.get());
    stream_->CopyOnDevice(to, from, size_bytes);
  }

 private:
  const std::shared_ptr<GuardedPages> pages_;
  const std::unique_ptr<Stream> stream_;
};

class GuardedKernel : public Kernel {
 public:
  GuardedKernel(std::shared_ptr<GuardedPages> pages,
                std::unique_ptr<Kernel> kernel)
      : pages_(std::move(pages)), kernel_(std::move(kernel)) {}

  void InputChanged(int input) override { kernel_->InputChanged(input); }
  size_t scratch_size_bytes() const override {
    return kernel_->scratch_size_bytes();
  }
  bool CanShare(int input, int output) const override {
    return kernel_->CanShare(input, output);
  }
  void Bind(const KernelBindings& bindings) override {
    kernel_->Bind(bindings);
  }
  void Launch(Stream& stream) override {
    const GuardedPages::Access access(pages_.get());
    kernel_->Launch(stream);
  }

 private:
  const std::shared_ptr<GuardedPages> pages_;
  const std::unique_ptr<Kernel> kernel_;
};

class GuardedBackend : public Backend {
 public:
  std::string_view name() const override { return "guarded"; }
  std::string device() const override { return "guarded reference"; }
  bool is_host_memory() const override { return false; }
  const graph::TargetInfo& target() const override {
    return reference_->target();
  }
  std::unique_ptr<Buffer> AllocateHost(size_t size_bytes) override {
    return reference_->Allocate(size_bytes);
  }
  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override {
    return std::make_unique<GuardedBuffer>(pages_, size_bytes);
  }
  std::unique_ptr<Stream> CreateStream() override {
    return std::make_unique<GuardedStream>(pages_, reference_->CreateStream());
  }
  std::unique_ptr<Event> CreateEvent() override {
    return reference_->CreateEvent();
  }
  std::unique_ptr<Kernel> CompileKernel(
      const graph::Graph& graph, const graph::Node& node,
      std::span<const InputTraits> inputs) override {
    return std::make_unique<GuardedKernel>(
        pages_, reference_->CompileKernel(graph, node, inputs));
  }

 private:
  const std::unique_ptr<Backend> reference_ = kernels::MakeBackend("reference");
  // held by everything that touches them
  const std::shared_ptr<GuardedPages> pages_ = std::make_shared<GuardedPages>();
};

}  // namespace

std::unique_ptr<Backend> MakeGuardedBackend() {
  return std::make_unique<GuardedBackend>();
}

std::unique_ptr<Backend> MakeGuardedBackendNamed(
    std::string_view /*name*/, const kernels::BackendOptions& /*options*/) {
  return MakeGuardedBackend();
}

}  // namespace replicant::testing
