"""Systems that carry payments from topic to topic, each as a program that is told when to begin."""
