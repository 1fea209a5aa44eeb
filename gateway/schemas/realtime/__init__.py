"""The events of the Realtime API, as far as the gateway reads them."""
