"""Small models whose true reasoning is known by construction, and the worlds they are trained on."""
