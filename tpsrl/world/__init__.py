"""Home: layouts, the Fetch, objects and episodes. Independent of engines and skills."""
