"""`trainyard prices`: the catalogue's training prices, and a region's current prices from AWS's Price List API.

price_list   prices from the API's products, and a catalogue with these prices. Pure
__main__     the command, which calls the API
"""
