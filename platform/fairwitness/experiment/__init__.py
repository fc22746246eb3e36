"""The frame that every measure runs on."""
