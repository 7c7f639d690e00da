"""The engine `habitat`: habitat-lab's simulator in processes of the user's own interpreter."""
