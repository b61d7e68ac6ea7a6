"""The order of products in einsum. taper.einsum takes them from left to right."""
enabled, strategy = False, None


def is_available():
    return False


def get_opt_einsum():
    return None
