"""Systems that carry payments from topic to topic, each as a program that waits for its turn."""
