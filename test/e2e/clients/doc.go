// Package clients runs real clients (client-go's informers, kubectl) directly and through
// listproxy at the same time, while writers create, change and delete objects and connections
// break. In the end, all must know the same, and what the API server has.
package clients
