#include "fleet/backends/hosts.h"

namespace replicant::fleet {

bool HostsBackend::HasRoom(const RoleSpec& spec) const {
  return !spec.is_remote || pool_.HasRoom(spec.id);
}

std::unique_ptr<RoleProcess> HostsBackend::Start(
    const RoleSpec& spec, uint32_t incarnation, const ProcessOptions& options) {
  if (!spec.is_remote) return local_.Start(spec, incarnation, options);
  // the agent makes the command, whose files lie elsewhere there
  const auto own_size = static_cast<std::ptrdiff_t>(spec.command.size());
  return pool_.Start(
      spec.id, incarnation,
      {options.command.begin() + own_size, options.command.end()},
      options.stdout_file);
}

}  // namespace replicant::fleet
