#include "base/rpc/group_key.h"

namespace replicant::rpc {

GroupKey GroupKey::FromFile(const std::filesystem::path& path) {
  return path.empty() ? GroupKey() : GroupKey(ReadKeyPair(path));
}

CurveRole GroupKey::server_role() const {
  if (!pair_) return std::monostate();
  return CurveServer{*pair_};
}

CurveRole GroupKey::client_role() const {
  return pair_ ? client_role(pair_->public_key) : std::monostate();
}

CurveRole GroupKey::client_role(const std::string& server_public_key) const {
  if (!pair_) return std::monostate();
  return CurveClient{*pair_, server_public_key};
}

std::unique_ptr<ZapHandler> GroupKey::MakeGuard(
    ZmqContext& context,
    const std::vector<std::string>& other_public_keys) const {
  if (!pair_) return nullptr;
  std::vector<std::string> keys = other_public_keys;
  keys.push_back(pair_->public_key);
  return std::make_unique<ZapHandler>(context, keys);
}

}  // namespace replicant::rpc
