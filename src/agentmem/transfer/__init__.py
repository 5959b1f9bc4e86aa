"""From and to other forms."""
