"""Side tasks: what keeps a store tidy, apart from the life of its messages."""
