"""The policy model server: /v1/responses and /v1/chat/completions over a back end, with a ledger of its calls."""
