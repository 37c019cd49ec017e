"""The remoting protocol over Trio streams: servers, clients, and what they hand requests to."""
