"""The Ray clusters that train and serve: made, waited for, released."""
