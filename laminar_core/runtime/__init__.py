"""Where clocks, threads, sockets and Spark live; everything below is called from here."""
