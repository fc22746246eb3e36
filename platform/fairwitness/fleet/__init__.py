"""Workers that keep a loaded engine, and the pools that feed them. Nothing here knows what an engine does."""
