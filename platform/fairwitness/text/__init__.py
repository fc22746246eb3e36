"""Pure text work: prompts, sentence segmentation, content words and token alignment. No model, no files, no Ray."""
