#include "fleet/backends/local.h"

namespace replicant::fleet {
namespace {

class LocalProcess : public RoleProcess {
 public:
  explicit LocalProcess(const ProcessOptions& options) : process_(options) {}

  std::optional<ExitStatus> Poll() override {
    return process_.Wait(std::chrono::milliseconds(0));
  }
  void Signal(int signal_number) override { process_.Signal(signal_number); }
  int fd() const override { return process_.pidfd(); }

 private:
  Process process_;
};

}  // namespace

std::unique_ptr<RoleProcess> LocalBackend::Start(
    const RoleSpec& /*spec*/, uint32_t /*incarnation*/,
    const ProcessOptions& options) {
  return std::make_unique<LocalProcess>(options);
}

}  // namespace replicant::fleet
