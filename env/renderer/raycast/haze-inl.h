// The haze at the horizon of an infinite plane. Included once per instruction
// set.
#include <algorithm>
#include <array>

#include "env/renderer/raycast/lighting-inl.h"
#include "env/renderer/raycast/list-inl.h"

#if defined(REPLICANT_RAYCAST_HAZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_HAZE_INL_H_
#undef REPLICANT_RAYCAST_HAZE_INL_H_
#else
#define REPLICANT_RAYCAST_HAZE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Lists the pixels in the haze, and lets it hide what is transparent behind it.
// The haze is a cone about the plane's normal through the eye. On the side with
// the edge e, a ray t d from the eye meets it at 1 / t = (d . e) / D - d_z
// slope = d . n, with D the distance of the sky; a ray that starts s away from
// the eye at 1 / t = d . n / (1 - s . n).
inline HWY_ATTR void ListHaze(const Snapshot& snapshot, const Band& band,
                              Frame& frame) {
  const Haze& haze = snapshot.haze;
  const Rays& rays = snapshot.rays;
  const auto sides = static_cast<float>(haze.edge_x.size());
  // 1 / t, and the height as a part of the elevation
  struct Place {
    Float nearness, height;
  };
  const auto meet = [&](Float x, Float y) HWY_ATTR {
    const Vec3 fan = Rotate(haze.to_plane, FanAt(rays, x, y));
    const Vec3 d =
        rays.are_parallel ? Rotate(haze.to_plane, Set(rays.forward)) : fan;
    // 1 / t on the side that stands in the direction (toward_x, toward_y)
    const auto meet_side = [&](Float toward_x, Float toward_y) HWY_ATTR {
      constexpr float kTwoPi = 6.28318531f;
      const Int side = ToInt(
          Clamp(hn::Floor(Atan2(toward_y, toward_x) * Set(sides / kTwoPi)),
                0.0f, sides - 1.0f));
      const Float edge_x = Gather(haze.edge_x.data(), side);
      const Float edge_y = Gather(haze.edge_y.data(), side);
      const auto times_normal = [&](Vec3 v) HWY_ATTR {
        return NegFma(
            v.z, Set(haze.slope),
            Fma(v.y, edge_y, v.x * edge_x) * Set(1.0f / snapshot.sky_distance));
      };
      const Float nearness = times_normal(d);
      return rays.are_parallel
                 ? nearness * SafeInverse(Set(1.0f) - times_normal(fan))
                 : nearness;
    };
    Float nearness = meet_side(d.x, d.y);
    Float rise = Set(1.0f);
    if (rays.are_parallel) {
      rise = Fma(fan.z, Set(1.0f / haze.elevation), rise);
      // the side follows from the place where the ray meets it
      for (int i = 0; i < 3; ++i) {
        const Float t = SafeInverse(nearness);
        nearness = meet_side(Fma(d.x, t, fan.x), Fma(d.y, t, fan.y));
      }
    }
    return Place{nearness, Fma(d.z * Set(1.0f / haze.elevation),
                               SafeInverse(nearness), rise)};
  };
  std::array<int32_t, hn::MaxLanes(kInt)> samples, colors;
  std::array<float, hn::MaxLanes(kFloat)> alpha;
  for (int y = band.y0; y < band.y1; ++y) {
    for (int x = 0; x < snapshot.width; x += static_cast<int>(NumLanes())) {
      const size_t at = band.Place(frame, x, y);
      const Float column = ToFloat(CountFrom(x));
      const auto row = static_cast<float>(y);
      const Int bits = SampleBits([&](size_t s) HWY_ATTR {
        const Place place = meet(column + Set(snapshot.samples->x[s]),
                                 Set(row + snapshot.samples->y[s]));
        float* seen = frame.direct.nearness[s].data() + at;
        const Float old = hn::LoadU(kFloat, seen);
        const Mask is_seen =
            hn::And(hn::And(place.nearness >= old,
                            place.nearness <= Set(1.0f / snapshot.near_depth)),
                    hn::And(place.height >= Zero(), place.height <= Set(1.0f)));
        hn::StoreU(If(is_seen, place.nearness, old), kFloat, seen);
        return hn::RebindMask(kInt, is_seen);
      });
      if (hn::AllTrue(kInt, hn::Eq(bits, hn::Zero(kInt)))) continue;
      const auto [nearness, height] = meet(column + Set(0.5f), Set(row + 0.5f));
      const Float rising = height * Set(1 / haze.middle);
      const Float falling = (Set(1.0f) - height) * Set(1 / (1 - haze.middle));
      Color color = Set(haze.color);
      if (snapshot.fog.is_on) {
        color = Fogged(snapshot.fog, SafeInverse(nearness), false, color);
      }
      hn::StoreU(Pack(ToBytes(color)), kInt, colors.data());
      hn::StoreU(bits, kInt, samples.data());
      hn::StoreU(Clamp(hn::Min(rising, falling), 0, 1), kFloat, alpha.data());
      const auto end = static_cast<size_t>(
          std::min(static_cast<int>(NumLanes()), snapshot.width - x));
      for (size_t lane = 0; lane < end; ++lane) {
        if (samples[lane] == 0) continue;
        frame.haze.push_back(
            {static_cast<size_t>(y) * frame.stride + static_cast<size_t>(x) +
                 lane,
             samples[lane], static_cast<uint32_t>(colors[lane]), alpha[lane]});
      }
    }
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
