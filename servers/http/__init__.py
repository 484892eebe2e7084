"""What every reference server shares on the data plane: routes, cookies, outgoing calls, the process around them."""
