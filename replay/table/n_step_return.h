#pragma once

namespace replicant::replay {

// The return of successive steps, computed in double:
//
//   R = sum_{i<k} (prod_{j<i} gamma d_{t+1+j}) r_{t+1+i}
//   D =  prod_{j<k} gamma d_{t+1+j}
class NStepReturn {
 public:
  // `discount` is gamma.
  explicit NStepReturn(double discount) : gamma_(discount) {}

  // Adds the next step, with r and d.
  void Add(float reward, float discount) {
    reward_ += discount_ * static_cast<double>(reward);
    discount_ *= gamma_ * static_cast<double>(discount);
  }

  float reward() const { return static_cast<float>(reward_); }      // R
  float discount() const { return static_cast<float>(discount_); }  // D

 private:
  double gamma_;
  double reward_ = 0.0;
  double discount_ = 1.0;
};

}  // namespace replicant::replay
