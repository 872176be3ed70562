"""Verification of the library, outside of it: explored worlds, damaged and forged stores."""
