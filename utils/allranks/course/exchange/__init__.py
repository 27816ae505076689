"""The exchange of a hub whose people share no disk: the hub's service (`server`, `store`), and how programs ask it (`remote`)."""
