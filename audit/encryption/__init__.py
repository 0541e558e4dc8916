"""Keys of persons: values sealed under them are gone, in every copy at once, when the key is."""
