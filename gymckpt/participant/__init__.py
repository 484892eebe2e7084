"""What a server embeds to become a checkpoint participant."""
