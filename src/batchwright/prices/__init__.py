"""What models cost: the user's price table laid over a dated table that is shipped with the package."""
