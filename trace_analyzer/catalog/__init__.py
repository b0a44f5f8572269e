"""Hold what is data: devices, rules, fixes and the article's figures."""
