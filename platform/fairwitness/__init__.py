"""fairwitness: is a model's written reasoning the reasoning it uses?"""

__version__ = "0.1.0"
