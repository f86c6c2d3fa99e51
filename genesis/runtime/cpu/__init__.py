"""Running CPU plans: host memory of tensors, and the executors of torch calls."""
