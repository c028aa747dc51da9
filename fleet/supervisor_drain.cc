#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <utility>

#include "base/error.h"
#include "fleet/supervisor.h"

// How processes are asked to end: all of them, stage by stage, at the end of a
// run, and single ones when a role gets fewer.
namespace replicant::fleet {

void Supervisor::AdvanceStop() {
  std::optional<int> stage;
  for (const Member& member : members_) {
    if (member.process == nullptr) continue;
    if (!stage || member.spec.stop_stage < *stage) {
      stage = member.spec.stop_stage;
    }
  }
  for (Member& member : members_) {
    if (member.process == nullptr || member.spec.stop_stage != *stage ||
        member.phase == RolePhase::kKilled) {
      continue;
    }
    if (!member.drain_deadline) {
      OrderDrain(member,
                 result_->message.substr(0, result_->message.find('\n')));
    } else {
      KillLateMember(member);
    }
  }
}

void Supervisor::OrderDrain(Member& member, const std::string& why) {
  member.drain_deadline = now_ + FromSeconds(options_.config.stop_timeout_s);
  monitor_.OrderStop(member.spec.id, why);
  if (member.spec.takes_sigterm) member.process->Signal(SIGTERM);
}

void Supervisor::KillLateMember(Member& member) {
  if (!member.drain_deadline || now_ < *member.drain_deadline ||
      member.phase == RolePhase::kKilled) {
    return;
  }
  Kill(member, fmt::format("still running {:.3g} s after the order to drain",
                           options_.config.stop_timeout_s));
}

void Supervisor::SetCount(const std::string& role, uint32_t count,
                          const std::function<RoleSpec(uint32_t)>& make,
                          const std::string& why) {
  if (IsStopping()) return;
  std::vector<Member*> known(count);
  for (Member& member : members_) {
    if (member.spec.id.role != role) continue;
    if (member.spec.group_arguments) {
      throw InvalidArgument(fmt::format("fleet: {} is a member of a group",
                                        member.spec.id.ToString()));
    }
    if (member.spec.id.index < count) known[member.spec.id.index] = &member;
  }
  std::vector<RoleSpec> specs;
  for (uint32_t i = 0; i < count; ++i) {
    specs.push_back(make(i));
    CheckSpec(specs.back());
  }
  for (Member& member : members_) {
    if (member.spec.id.role != role) continue;
    const bool is_wanted = member.spec.id.index < count;
    if (is_wanted == member.is_wanted) continue;
    member.is_wanted = is_wanted;
    if (is_wanted && member.process == nullptr) {
      member.phase = RolePhase::kPending;
    } else if (!is_wanted && member.process == nullptr) {
      member.phase = RolePhase::kEnded;
    } else if (!is_wanted && !member.drain_deadline) {
      OrderDrain(member, why);
    }
  }
  for (RoleSpec& spec : specs) {
    Member* const member = known[spec.id.index];
    if (member != nullptr) {
      // its processors stay
      member->spec.arguments = std::move(spec.arguments);
      continue;
    }
    AddMember(std::move(spec));
    members_.back().is_added = true;
  }
}

}  // namespace replicant::fleet
