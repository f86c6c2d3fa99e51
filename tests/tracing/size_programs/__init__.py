"""Random functions over sizes and numbers that change from call to call, compiled and plain side by side."""
