"""What servers and clients of every protocol share: listening, and words for operators when a connection fails."""
