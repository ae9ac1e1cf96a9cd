"""What all stand on: errors, words, terminals, arguments, programs."""
