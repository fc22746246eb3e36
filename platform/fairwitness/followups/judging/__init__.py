"""FUR's second protocol: does the CoT written after unlearning argue for another answer?"""
