"""The serving half: adapters checked and published, the application that answers with them."""
