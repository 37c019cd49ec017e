"""What lies on the disk, without its meaning: files of one size in a row, small files replaced as a whole, names."""
