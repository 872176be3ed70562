"""Systems that join the same files, each as a program that waits for its turn."""
