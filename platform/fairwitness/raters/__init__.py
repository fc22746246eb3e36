"""The step study (FUR §6.4, App. J): do people find the steps convincing that the model's answer depends on?"""
