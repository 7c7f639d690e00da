"""Pictures: ray casting of depth and colour on the CPU, cameras, video files."""
