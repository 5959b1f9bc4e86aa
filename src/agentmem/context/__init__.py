"""What a reader gets: resume, left, summaries, within a budget of tokens."""
