"""What stands between the network and the routes: keys, admission, limits on requests, scrubbed errors."""
