"""What is gRPC and belongs to no single service."""
