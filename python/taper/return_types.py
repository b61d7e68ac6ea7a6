"""The named tuples that operators with several results return (made when first returned)."""
