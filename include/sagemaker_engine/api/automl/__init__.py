"""AutoML jobs: operations of both versions, checks, answers, and the ports of a search into the engine."""
