"""Random training steps, composed of what people write in them, run plain and compiled."""
