"""A warm driver that waits until the driver of its job is lost, and then takes the job over."""
