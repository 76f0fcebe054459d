"""`trainyard prices`: the catalogue's training prices, and new ones of a region from AWS's Price List API.

price_list   the API's products as prices, and a catalogue with them. Pure
__main__     the command, which calls the API
"""
