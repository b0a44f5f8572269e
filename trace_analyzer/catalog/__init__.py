"""Hold the data of the program: devices, rules, fixes and the article's figures."""
