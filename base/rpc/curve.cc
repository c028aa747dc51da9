#include "base/rpc/curve.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/zmq_call.h"

namespace replicant::rpc {
namespace {

constexpr size_t kKeyCharacters = 40;
constexpr std::string_view kZ85 =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ".-:+=^!/*?&<>()[]{}@%$#";
// far above the needs of a fleet, yet harmless to read
constexpr uint64_t kMaxFileBytes = 1 << 20;

// Takes "<name> = <key>" off the stream.
std::string ReadNamedKey(const std::filesystem::path& path, int line_number,
                         const std::string& name, std::istream& stream) {
  const std::string prefix = name + " = ";
  std::string line;
  std::getline(stream, line);
  if (!line.starts_with(prefix) || !IsCurveKey(line.substr(prefix.size()))) {
    // the line itself may hold a secret
    throw IoError(
        fmt::format("{}:{}: expected '{}' and a key of 40 Z85 characters",
                    path.string(), line_number, prefix));
  }
  return line.substr(prefix.size());
}

// Whether root has given the file to a group of this process to read, as
// Kubernetes gives a secret to the pods of other users (fsGroup).
bool IsOfOwnGroup(const struct stat& status) {
  if (status.st_uid != 0 || ::geteuid() == 0) return false;
  if (status.st_gid == ::getegid()) return true;
  std::vector<gid_t> groups(
      static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(0, count)));
  return std::ranges::find(groups, status.st_gid) != groups.end();
}

void CheckOwnerOnly(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw IoError::FromErrno("stat", path, errno);
  }
  const mode_t others = status.st_mode & 077;
  if (others != 0 && !(others == 040 && IsOfOwnGroup(status))) {
    throw IoError(
        fmt::format("{}: mode {:04o} lets others read a secret key; hint: "
                    "chmod 600",
                    path.string(), status.st_mode & 07777));
  }
}

}  // namespace

CurveKeyPair GenerateCurveKeyPair() {
  std::array<char, kKeyCharacters + 1> public_key{};
  std::array<char, kKeyCharacters + 1> secret_key{};
  ZMQ_CALL(zmq_curve_keypair(public_key.data(), secret_key.data()));
  return {public_key.data(), secret_key.data()};
}

bool IsCurveKey(const std::string& key) {
  return key.size() == kKeyCharacters &&
         key.find_first_not_of(kZ85) == std::string::npos;
}

void WriteKeyPair(const std::filesystem::path& path, const CurveKeyPair& keys) {
  AtomicWriteFile(path,
                  fmt::format("public_key = {}\nsecret_key = {}\n",
                              keys.public_key, keys.secret_key),
                  /*mode=*/0600);
}

CurveKeyPair ReadKeyPair(const std::filesystem::path& path) {
  CheckOwnerOnly(path);
  std::istringstream stream(ReadFile(path, kMaxFileBytes));
  CurveKeyPair keys;
  keys.public_key = ReadNamedKey(path, 1, "public_key", stream);
  keys.secret_key = ReadNamedKey(path, 2, "secret_key", stream);
  return keys;
}

void WritePublicKeys(const std::filesystem::path& path,
                     const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += key + '\n';
  AtomicWriteFile(path, text);
}

std::vector<std::string> ReadPublicKeys(const std::filesystem::path& path) {
  std::istringstream stream(ReadFile(path, kMaxFileBytes));
  std::vector<std::string> keys;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    // '#' is a character of Z85, so a key may start with it
    if (IsCurveKey(line)) {
      keys.push_back(line);
    } else if (!line.empty() && line[0] != '#') {
      throw IoError(
          fmt::format("{}:{}: expected a public key of 40 Z85 characters, got "
                      "{} characters",
                      path.string(), number, line.size()));
    }
  }
  return keys;
}

}  // namespace replicant::rpc
