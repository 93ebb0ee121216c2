// Made by scripts/make_numbers.py from record/numbers.hpp. Do not edit: change the table there.

/** Numbers of a group and of a parameter. `tensor_key` is the name beside a gradient's or weight's others. */
export const TENSOR_NUMBERS = [
  { key: "grad_norm", tensor_key: "norm", title: "Gradient norm", label: "grad norm", site: "grad", join: "norm", unit: "plain" },
  { key: "grad_abs_max", tensor_key: "abs_max", title: "Largest gradient", label: "grad max", site: "grad", join: "max", unit: "plain" },
  { key: "grad_abs_min_nonzero", tensor_key: "abs_min_nonzero", title: "Smallest nonzero gradient", label: "grad min", site: "grad", join: "min", unit: "plain" },
  { key: "grad_abs_mean", tensor_key: "abs_mean", title: "Mean gradient magnitude", label: "grad mean", site: "grad", join: "mean", unit: "plain" },
  { key: "grad_zero_ratio", tensor_key: "zero_ratio", title: "Zeros in the gradient", label: "zeros", site: "grad", join: "share", unit: "share" },
  { key: "grad_subnormal_ratio", tensor_key: "subnormal_ratio", title: "Subnormals in the gradient", label: "subnormals", site: "grad", join: "share", unit: "share" },
  { key: "weight_norm", tensor_key: "norm", title: "Weight norm", label: "weight norm", site: "weight", join: "norm", unit: "plain" },
  { key: "update_ratio", tensor_key: "", title: "Update / weight", label: "update / weight", site: "weight", join: "update", unit: "ratio" },
] as const;
export type TensorNumber = (typeof TENSOR_NUMBERS)[number];

/** Numbers of a step that the history has. */
export const STEP_NUMBERS = [
  { key: "loss", title: "Loss", words: "loss", unit: "plain", site: "" },
  { key: "grad_norm", title: "Gradient norm", words: "gradient norm", unit: "plain", site: "grad" },
  { key: "grad_norm_at_step", title: "Gradient norm after clipping", words: "gradient norm after clipping", unit: "plain", site: "grad" },
  { key: "clip_coefficient", title: "Clip coefficient", words: "clip coefficient", unit: "plain", site: "" },
  { key: "grad_abs_max", title: "Largest gradient", words: "largest gradient", unit: "plain", site: "grad" },
  { key: "grad_abs_min_nonzero", title: "Smallest nonzero gradient", words: "smallest nonzero gradient", unit: "plain", site: "grad" },
  { key: "grad_abs_mean", title: "Mean gradient magnitude", words: "mean gradient magnitude", unit: "plain", site: "grad" },
  { key: "grad_zero_ratio", title: "Zeros in the gradients", words: "share of zeros", unit: "share", site: "grad" },
  { key: "grad_subnormal_ratio", title: "Subnormals in the gradients", words: "share of subnormals", unit: "share", site: "grad" },
  { key: "weight_norm", title: "Weight norm", words: "weight norm", unit: "plain", site: "weight" },
  { key: "update_ratio", title: "Update / weight", words: "update ratio", unit: "ratio", site: "" },
  { key: "lr", title: "Learning rate", words: "largest learning rate", unit: "plain", site: "" },
  { key: "loss_scale", title: "Loss scale", words: "loss scale", unit: "plain", site: "" },
  { key: "step_seconds", title: "Step time", words: "step time", unit: "seconds", site: "" },
  { key: "agent_seconds", title: "Time in Gradvane's hooks", words: "time in Gradvane's hooks", unit: "seconds", site: "" },
  { key: "rank_wait_seconds", title: "Time waiting for other ranks", words: "time waiting for other ranks", unit: "seconds", site: "" },
  { key: "host_syncs", title: "Host syncs", words: "host syncs", unit: "calls", site: "" },
  { key: "host_sync_seconds", title: "Time blocked by host syncs", words: "time blocked by host syncs", unit: "seconds", site: "" },
  { key: "tokens_per_second", title: "Tokens per second", words: "tokens per second", unit: "per_second", site: "" },
  { key: "model_flops_utilization", title: "Model FLOPs utilization", words: "model FLOPs utilization", unit: "share", site: "" },
  { key: "process_resident_bytes", title: "Resident memory", words: "resident memory", unit: "bytes", site: "" },
  { key: "device_allocated_bytes", title: "Device memory allocated", words: "device memory allocated", unit: "bytes", site: "" },
] as const;
