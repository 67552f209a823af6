"""What all joins share: the columns of their output."""
