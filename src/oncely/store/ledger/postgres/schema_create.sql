create schema oncely
