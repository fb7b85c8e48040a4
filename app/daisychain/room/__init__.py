"""A room: this device's replica, the step protocol, the links, and what the page sees of them."""
