package router

// Config is the KV router's configuration, complete (spec kv-router 3).
type Config struct{}
