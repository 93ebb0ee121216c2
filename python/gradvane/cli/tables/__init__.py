"""Tables that programs have made from those of the C++ sources."""
