// Package clients has real clients (client-go's informers and pager, kubectl) do what they do,
// straight and through listproxy at once, while writers create, change and delete objects and
// connections break. What they know in the end must be the same, and what the API server has.
//
// What was when is told by a ledger: one watch for each resource, straight from the API
// server, from before the first write on. Walks through pages are held against it.
package clients
