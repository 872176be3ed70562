"""A stream from a real Kafka broker that is killed, as are the workers and the driver."""
