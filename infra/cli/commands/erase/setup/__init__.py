"""Keys and the register that erasing needs."""
